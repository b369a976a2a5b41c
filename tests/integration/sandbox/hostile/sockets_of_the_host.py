"""Sockets of the host by path."""

for path in (
    FACTS["socket"],
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/tmp/.X11-unix/X0",
):
    with socket.socket(socket.AF_UNIX) as one:
        if one.connect_ex(path) == 0:
            escaped(path)
