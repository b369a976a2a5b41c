"""Interfaces beside the box's own loopback."""

names = [name for _, name in attempt(socket.if_nameindex) or []]
if [
    name
    for name in names
    if name != "lo" and not name.startswith(("tunl", "sit", "ip6", "gre", "erspan", "bond", "dummy"))
]:
    escaped(str(names))
for name in ("eth0", "docker0", "wlan0", "ens3", "enp0s3"):
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, 25, name.encode() + b"\0")
            escaped(name)
        except OSError as error:
            print(error)
