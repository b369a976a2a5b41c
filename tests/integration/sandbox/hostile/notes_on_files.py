"""Extended attributes and flags of the host's files, and attributes by which overlays and capabilities decide."""

import fcntl
import struct

FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR = 0x40086602, 0x401C5820
ATTRIBUTES = ("user.x", "trusted.overlay.opaque", "user.overlay.opaque", "security.capability")
for path in ("/usr/bin/env", "/bin/sh", "/usr", "/etc", "/"):
    for name in ATTRIBUTES:
        try:
            os.setxattr(path, name, b"y")
            escaped(f"{name} of {path}")
        except OSError as error:
            print(error)
open("own", "w").close()
try:
    os.setxattr("own", "trusted.overlay.redirect", b"/etc/shadow")
    escaped("attributes for root")
except OSError as error:
    print(error)
program = attempt(os.open, "/usr/bin/env", os.O_RDONLY)
for number in (FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR):
    if attempt(fcntl.ioctl, program, number, struct.pack("7i", *[0x30] * 7)) is not None:
        escaped("flags of a file")
