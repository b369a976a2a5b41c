"""Namespaces of other processes."""

for pid in ("1", str(os.getppid()), str(FACTS["victim"]), "self"):
    for name in ("mnt", "pid", "net", "user", "ipc", "uts", "cgroup", "time"):
        try:
            file = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        if syscall("setns", file, 0)[0] >= 0:
            escaped(f"{name} of {pid}")
