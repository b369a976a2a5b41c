"""Names of machines."""

for name in (
    "example.com",
    "localhost.localdomain",
    "host.docker.internal",
    "metadata.google.internal",
    FACTS["host_name"],
):
    try:
        found = {one[4][0] for one in socket.getaddrinfo(name, 80)}
    except OSError:
        continue
    if not all(one.startswith("127.") or one == "::1" for one in found):
        escaped(f"{name} is {found}")
