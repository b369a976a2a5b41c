"""Notes of what others do in folders that all boxes see."""

import fcntl

DN_ACCESS, DN_MULTISHOT = 1, 0x80000000
for path in ("/usr/bin", "/usr/lib", "/etc", "/"):
    folder = os.open(path, os.O_RDONLY)
    for flags in (DN_ACCESS, DN_MULTISHOT | 0x3F):
        try:
            fcntl.fcntl(folder, fcntl.F_NOTIFY, flags)
            escaped(f"notes of {path}")
        except OSError as error:
            print(error)
