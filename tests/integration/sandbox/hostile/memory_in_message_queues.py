"""Queues of the kernel."""

for key in range(10):
    if syscall("msgget", key + 1, 0o1666)[0] >= 0 or syscall("semget", key + 1, 100, 0o1666)[0] >= 0:
        escaped("a queue that no process owns")
if syscall("mq_open", b"q", os.O_CREAT | os.O_RDWR, 0o600, 0)[0] >= 0:
    escaped("a queue that no process owns")
