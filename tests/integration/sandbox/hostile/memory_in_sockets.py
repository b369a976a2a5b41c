"""Buffers of sockets without a reader."""

total, pairs = 0, []
try:
    while total < 1 << 30:
        pair = socket.socketpair()
        pairs.append(pair)
        for one in pair:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            one.setblocking(False)
            try:
                while True:
                    total += one.send(b"x" * 65536)
            except BlockingIOError:
                pass
except OSError as error:
    print("stopped at", total, error)
if total >= 1 << 30:
    escaped(f"{total} bytes")
