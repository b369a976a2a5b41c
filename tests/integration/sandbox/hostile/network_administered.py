"""Rights over the box's own network, which reach parsers of the kernel that others never see."""

import fcntl
import struct

SIOCSIFFLAGS, SIOCSIFMTU, SIOCBRADDBR, SIOCSIFTXQLEN = 0x8914, 0x8922, 0x89A0, 0x8943
SO_MARK, SO_PRIORITY, IP_TRANSPARENT, IPT_SO_SET_REPLACE = 36, 12, 19, 64
lo = b"lo".ljust(16, b"\0")
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        one = attempt(socket.socket, family, kind)
        if one is None:
            continue
        for number, value in ((SIOCSIFFLAGS, 0x40), (SIOCSIFMTU, 1000), (SIOCSIFTXQLEN, 7)):
            if attempt(fcntl.ioctl, one, number, lo + struct.pack("i20x", value)) is not None:
                escaped(f"set {number:#x} of lo")
        if attempt(fcntl.ioctl, one, SIOCBRADDBR, b"bridge".ljust(16, b"\0")) is not None:
            escaped("a bridge")
        for level, name, value in (
            (socket.SOL_SOCKET, SO_MARK, 7),
            (socket.SOL_SOCKET, SO_PRIORITY, 100),
            (socket.IPPROTO_IP, IP_TRANSPARENT, 1),
        ):
            try:
                one.setsockopt(level, name, value)
                escaped(f"option {name}")
            except OSError as error:
                print(error)
        try:
            one.setsockopt(socket.IPPROTO_IP, IPT_SO_SET_REPLACE, b"\xff" * 96)
            escaped("a table of iptables")
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EFAULT, errno.ENOENT, errno.ENOMEM):
                escaped(f"the parser of iptables: {error}")
with socket.socket() as low:
    try:
        low.bind(("127.0.0.1", 80))
        escaped("a port of root")
    except OSError as error:
        print(error)
