"""Shared memory that outlives its process."""

for key in range(64):
    number, _ = syscall("shmget", key + 1, 64 << 20, 0o1666)
    if number >= 0:
        escaped("a segment that no process owns")
