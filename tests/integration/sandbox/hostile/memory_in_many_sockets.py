"""Buffers of sockets of many processes, unread, their senders closed or not."""

import mmap

NUM_PROCESSES = 24
LIMIT = 3 * 256 << 20
totals = mmap.mmap(-1, 8 * NUM_PROCESSES)


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


def fill(number, pairs):
    held, total = [], 0
    for sender, receiver in pairs:
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
        totals[8 * number : 8 * number + 8] = total.to_bytes(8, "little")


children = []
for number in range(NUM_PROCESSES):
    if (child := os.fork()) == 0:
        try:
            fill(number, (pairs_of_tcp, pairs_of_udp, pairs_of_unix)[number % 3]())
        except OSError as error:
            print(number, "stopped", error)
        finally:
            sys.stdout.flush()
            time.sleep(30)
            os._exit(0)
    children.append(child)
total, grown_at = 0, time.monotonic()
while time.monotonic() < grown_at + (0.3 if total else 5):
    before = total
    total = sum(int.from_bytes(totals[8 * one : 8 * one + 8], "little") for one in range(NUM_PROCESSES))
    if total > LIMIT:
        escaped(f"{total >> 20} MB")
        break
    grown_at = time.monotonic() if total > before else grown_at
    time.sleep(0.02)
print("held", total >> 20)
for child in children:
    os.kill(child, signal.SIGKILL)
