"""Higher limits."""

import resource

for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    try:
        resource.setrlimit(limit, (1 << 30, 1 << 30))
        escaped(f"limit {limit}")
    except (OSError, ValueError) as error:
        print(error)
