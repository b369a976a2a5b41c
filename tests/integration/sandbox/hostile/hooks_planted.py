"""Start-up hooks for the next interpreter."""

for place in (*sys.path, "/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages"):
    for name in ("sitecustomize.py", "usercustomize.py", "planted.pth"):
        if place and not place.startswith(("/work", "/tmp")):
            try:
                with open(f"{place}/{name}", "w") as file:
                    file.write("print('ESCAPED planted')")
                escaped(f"{place}/{name}")
            except OSError as error:
                print(error)
home = os.environ["HOME"]
os.makedirs(f"{home}/.local/lib/python3.11/site-packages", exist_ok=True)
for path in (
    f"{home}/sitecustomize.py",
    f"{home}/.local/lib/python3.11/site-packages/usercustomize.py",
    "/tmp/json.py",
    f"{home}/json.py",
):
    with open(path, "w") as file:
        file.write("print('ESCAPED planted')")
