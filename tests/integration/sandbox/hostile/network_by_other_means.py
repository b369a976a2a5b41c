"""Ways out that are no plain connection: UDP, broadcasts, multicasts, fast open, addresses of clouds, devices."""

SO_BINDTODEVICE = 25
addresses = [*FACTS["addresses"], "8.8.8.8", "255.255.255.255", "224.0.0.251", "169.254.169.254"]
for family, address in [*((socket.AF_INET, one) for one in addresses), (socket.AF_INET6, "ff02::1")]:
    for kind, flags in ((socket.SOCK_DGRAM, 0), (socket.SOCK_STREAM, socket.MSG_FASTOPEN)):
        with socket.socket(family, kind) as one:
            one.settimeout(0.2)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if attempt(one.sendto, b"x", flags, (address, FACTS["port"])) is not None:
                escaped(f"sent to {address}")
with socket.socket() as one:
    if attempt(one.setsockopt, socket.SOL_SOCKET, SO_BINDTODEVICE, b"eth0") is not None:
        escaped("bound to a device")
