"""The neighbouring box, by its network, sockets and files."""

for host in ("127.0.0.1", "0.0.0.0", "::1"):
    try:
        socket.create_connection((host, FACTS["neighbour_port"]), 1)
        escaped(host)
    except OSError as error:
        print(error)
with socket.socket(socket.AF_UNIX) as one:
    if one.connect_ex("\0neighbour") == 0:
        escaped("its abstract socket")
for top in ("/work", "/tmp", "/dev/shm", "/run"):
    for _, _, names in os.walk(top):
        if "neighbour-was-here" in names:
            escaped(top)
