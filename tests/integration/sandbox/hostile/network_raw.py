"""Sockets that see or forge packets, or reach the kernel."""

for family, kind, protocol in (
    (2, 3, 1),
    (17, 3, 0x300),
    (17, 2, 0x300),
    (16, 3, 0),
    (16, 3, 16),
    (16, 3, 9),
    (40, 1, 0),
    (38, 5, 0),
    (10, 3, 58),
    (44, 3, 0),
    (21, 5, 0),
    (31, 3, 1),
    (29, 3, 1),
    (30, 2, 0),
    (42, 5, 0),
    (2, 1, 262),
    (2, 5, 132),
    (2, 6, 33),
    (2, 2, 136),
):
    try:
        socket.socket(family, kind, protocol)
        escaped(f"socket {family} {kind} {protocol}")
    except OSError as error:
        print(family, error.errno)
