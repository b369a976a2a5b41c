"""Open files of other processes, fetched by their descriptors."""

for pid in (1, os.getppid(), FACTS["victim"], FACTS["worker"]):
    pidfd, _ = syscall("pidfd_open", pid, 0)
    if pidfd >= 0:
        for number in range(16):
            if syscall("pidfd_getfd", pidfd, number, 0)[0] >= 0:
                escaped(f"descriptor {number} of {pid}")
