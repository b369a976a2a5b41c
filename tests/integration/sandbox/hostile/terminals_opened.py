"""Terminals and devices of the host, and the knobs of harmless ones."""

import fcntl

RNDADDTOENTCNT, RNDCLEARPOOL = 0x40045201, 0x5206
for name in (
    *("console", "fuse", "hwrng", "input/event0", "kmsg", "kvm", "loop-control", "mem", "net/tun", "rtc", "tty0"),
    *("uinput", "userfaultfd", "vcs", "vhost-net", "vsock"),
):
    if attempt(os.open, f"/dev/{name}", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK) is not None:
        escaped(name)
for name in ("random", "urandom"):
    for number in (RNDADDTOENTCNT, RNDCLEARPOOL):
        file = attempt(os.open, f"/dev/{name}", os.O_RDWR)
        if file is not None and attempt(fcntl.ioctl, file, number, bytes(64)) is not None:
            escaped(f"{number:x} of {name}")
