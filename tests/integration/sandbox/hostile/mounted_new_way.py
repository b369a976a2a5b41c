"""Mounts by the newer calls."""

for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup2"):
    if syscall("fsopen", kind, 0)[0] >= 0:
        escaped(f"fsopen {kind}")
if syscall("open_tree", -100, b"/", 1)[0] >= 0 or syscall("fspick", -100, b"/", 0)[0] >= 0:
    escaped("open_tree")
if syscall("move_mount", 0, b"", -100, b"/tmp", 4)[0] >= 0:
    escaped("move_mount")
if syscall("mount_setattr", -100, b"/usr", 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32)[0] >= 0:
    escaped("mount_setattr")
