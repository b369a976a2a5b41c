"""What covers the host's own files, taken away."""

for path in (b"/proc", b"/usr", b"/tmp", b"/dev/null", b"/"):
    for flags in (0, 2, 1):
        if LIBC.umount2(path, flags) == 0:
            escaped(f"umount {path}")
if len(processes()) > 40:
    escaped("processes of the host")
