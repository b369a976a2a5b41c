"""Mounts in every way."""

for target in (b"/tmp", b"/work", b"/proc", b"/"):
    for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup2", b"overlay", b"devpts", b"ext4"):
        if LIBC.mount(b"none", target, kind, 0, None) == 0:
            escaped(f"{kind} on {target}")
if LIBC.mount(b"none", b"/", None, 32 | 4096, None) == 0 or LIBC.mount(b"none", b"/usr", None, 32 | 4096, None) == 0:
    escaped("the root directory is writable")
