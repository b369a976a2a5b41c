"""Locks on files that others need."""

import fcntl

for path in ("/usr/bin/env", "/usr/lib/os-release"):
    file = os.open(path, os.O_RDONLY)
    attempt(fcntl.fcntl, file, 1024, fcntl.F_WRLCK)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        escaped(path)
    except OSError as error:
        print(error)
