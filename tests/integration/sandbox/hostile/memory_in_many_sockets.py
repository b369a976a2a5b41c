"""Buffers of sockets of many processes, unread, their senders closed or not."""

NUM_PROCESSES = 24
LIMIT = 3 * 256 << 20


def pairs_of_tcp():
    server = socket.create_server(("127.0.0.1", 0))
    while True:
        one = socket.create_connection(server.getsockname())
        yield one, server.accept()[0]


def pairs_of_udp():
    while True:
        one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        other.bind(("127.0.0.1", 0))
        one.connect(other.getsockname())
        yield one, other


def pairs_of_unix():
    while True:
        yield socket.socketpair()


def fill(number, tell):
    held, total = [], 0
    for sender, receiver in (pairs_of_tcp, pairs_of_udp, pairs_of_unix)[number % 3]():
        held += [sender, receiver]
        for one in (sender, receiver):
            one.setblocking(False)
        for one in (sender, receiver):
            try:
                for _ in range(1 << 10):
                    sent = one.send(bytes(1 << 15))
                    total += sent if one.type == socket.SOCK_STREAM else 0  # datagrams without room are lost
            except OSError:
                pass
        tell(total)


exhaust(fill, NUM_PROCESSES, LIMIT, "bytes")
