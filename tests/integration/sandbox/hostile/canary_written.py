"""A file of the host, written, truncated, removed and replaced."""

path = FACTS["canary"]
attempt(os.truncate, path, 0)
attempt(os.unlink, path)
attempt(os.rename, "/etc/passwd", path)
for start in ("", "/proc/1/root", "/proc/self/root"):
    try:
        with open(start + path, "r+") as file:
            file.write("changed")
        escaped(start + path)
    except OSError as error:
        print(error)
