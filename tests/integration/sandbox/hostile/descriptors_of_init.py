"""Open files of the first process of the box."""

for pid in ("1", str(os.getppid())):
    for number in range(64):
        for how in (os.O_RDONLY, os.O_WRONLY):
            if attempt(os.open, f"/proc/{pid}/fd/{number}", how) is not None:
                escaped(f"/proc/{pid}/fd/{number}")
    if attempt(os.listdir, f"/proc/{pid}/fd"):
        escaped(f"the open files of {pid}")
