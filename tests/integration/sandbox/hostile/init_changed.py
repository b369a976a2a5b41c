"""Limits and memory of other processes."""

import resource

for pid in (1, os.getppid(), FACTS["victim"]):
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CPU):
        try:
            resource.prlimit(pid, limit, (0, 0))
            escaped(f"changed {pid}")
        except (OSError, ValueError) as error:
            print(error)
    if syscall("kcmp", os.getpid(), pid, 0, 0, 0)[0] >= 0 or syscall("move_pages", pid, 0, None, None, None, 0)[0] >= 0:
        escaped(f"looks into {pid}")
