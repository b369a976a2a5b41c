"""Open files hidden in sockets that pass each other."""

n = 0
try:
    while n < 50_000:
        left, right = socket.socketpair()
        socket.send_fds(left, [b"x"], [left.fileno(), right.fileno()] * 50)
        n += 100
        left.close()
        right.close()
except OSError as error:
    print("stopped at", n, error)
if n >= 50_000:
    escaped(f"{n} descriptors in flight")
