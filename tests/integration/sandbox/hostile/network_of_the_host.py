"""Listeners on the host's loopback address."""

for family, host in (
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::1"),
    (socket.AF_INET6, "::ffff:127.0.0.1"),
):
    with socket.socket(family) as one:
        one.settimeout(1)
        if one.connect_ex((host, FACTS["port"])) == 0:
            escaped(host)
