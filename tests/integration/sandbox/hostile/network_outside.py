"""Addresses of other machines."""

for host in ("10.0.0.1", "169.254.169.254", "172.17.0.1", "192.168.0.1", "1.1.1.1", *FACTS["addresses"]):
    with socket.socket() as one:
        one.settimeout(0.3)
        if one.connect_ex((host, FACTS["port"])) == 0:
            escaped(host)
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        try:
            one.sendto(b"x", (host, 53))
            escaped(f"a datagram to {host}")
        except OSError as error:
            print(error)
