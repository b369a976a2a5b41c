"""Sockets of the host by abstract name."""

for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    with socket.socket(socket.AF_UNIX, kind) as one:
        if one.connect_ex("\0" + FACTS["abstract"]) == 0:
            escaped("an abstract socket")
if FACTS["abstract"].encode() in (attempt(read_bytes, "/proc/net/unix") or b""):
    escaped("names of the host's sockets")
