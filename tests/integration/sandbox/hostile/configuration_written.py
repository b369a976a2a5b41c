"""What other programs of the box's root would read."""

for path in (
    "/etc/passwd",
    "/etc/ld.so.preload",
    "/etc/ld.so.cache",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
):
    try:
        with open(path, "a") as file:
            file.write("x")
        escaped(path)
    except OSError as error:
        print(error)
