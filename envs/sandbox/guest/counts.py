"""Counts of what a process of a box holds, for limits that no cgroup keeps."""

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FEW_DESCRIPTORS = 32
"""With as many, half of them watching the other half, all processes of a box stay below what it may watch."""


def resident_bytes(pid: int, proc: str) -> int:
    """Return the resident memory of a process, which it shares in part with the process that forked it; 0: it ended.

    Args:
        pid: of the process.
        proc: where it is seen.
    """
    try:
        with open(f"{proc}/{pid}/statm", "rb") as sizes:
            return int(sizes.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def count_watches(pid: int, proc: str, enough: int) -> int:
    """Return how many descriptors the ``epoll`` of a process watch, or might where it hides them; few are not counted.

    Args:
        pid: of the process.
        proc: where it is seen.
        enough: number beyond which it is not counted further.
    """
    found, place = 0, f"{proc}/{pid}/fd"
    try:
        num_descriptors = os.stat(place).st_size  # 0 before Linux 6.2
        if 0 < num_descriptors <= _FEW_DESCRIPTORS:
            return 0
        for name in os.listdir(place):
            if os.readlink(f"{place}/{name}") == "anon_inode:[eventpoll]":
                with open(f"{place}info/{name}", "rb") as watched:
                    found += watched.read().count(b"tfd:")
            if found > enough:
                break
    except PermissionError:
        return max(found, (num_descriptors // 2) ** 2)
    except OSError:  # it has ended, or closed it
        return found
    return found
