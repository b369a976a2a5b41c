"""Tracing at all, also of its own children."""

pid = os.fork()
if pid == 0:
    time.sleep(5)
    os._exit(0)
if syscall("ptrace", 16, pid, 0, 0)[0] >= 0 or syscall("ptrace", 0, 0, 0, 0)[0] >= 0:
    escaped("traces")
