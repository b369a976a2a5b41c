"""New namespaces, in which it would be root."""

for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80, 0x10020000):
    if syscall("unshare", flag)[0] >= 0:
        escaped(f"unshare {flag:#x}")
    pid, _ = syscall("clone", flag | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        escaped(f"clone {flag:#x}")
