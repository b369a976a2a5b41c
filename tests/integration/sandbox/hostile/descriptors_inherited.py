"""Open files of the worker."""

for name in os.listdir("/proc/self/fd"):
    target = attempt(os.readlink, f"/proc/self/fd/{name}") or ""
    if int(name) > 2 and target and not target.startswith("/proc/"):
        escaped(f"{name} is {target}")
for number in range(3, 1024):
    try:
        os.fstat(number)
        escaped(f"descriptor {number} is open")
    except OSError:
        pass
