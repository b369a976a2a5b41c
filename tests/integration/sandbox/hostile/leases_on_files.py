"""Leases and locks that would make the host wait for its own files."""

import fcntl
import struct

F_SETLEASE, F_OFD_SETLK = 1024, 37
for path in ("/usr/bin/env", "/bin/sh", "/etc/ld.so.cache"):
    file = attempt(os.open, path, os.O_RDONLY)
    if file is None:
        continue
    for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
        if attempt(fcntl.fcntl, file, F_SETLEASE, kind) is not None:
            escaped(f"a lease on {path}")
    for command in (fcntl.F_SETLK, F_OFD_SETLK):
        if attempt(fcntl.fcntl, file, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)) is not None:
            escaped(f"a lock on {path}")
