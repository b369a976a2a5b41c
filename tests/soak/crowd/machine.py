"""Processes as the kernel reports them: children, memory and CPU time."""

import os
from pathlib import Path

__all__ = ["Tree", "children_of_all"]

_CLOCK_HZ, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def children_of_all(without: int) -> dict[int, list[int]]:
    """Children of every process; one of them is left out."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(_fields(stat)[1])
        except OSError:  # it has ended
            continue
        if (pid := int(stat.parent.name)) != without:
            found.setdefault(parent, []).append(pid)
    return found


class Tree:
    """A process and all that it started."""

    def __init__(self, pid: int, children: dict[int, list[int]]) -> None:
        below = [Tree(child, children) for child in children.get(pid, [])]
        self.rss_mb = _rss_mb(pid) + sum(one.rss_mb for one in below)
        self.cpu_seconds = _cpu_seconds(pid) + sum(one.cpu_seconds for one in below)


def _rss_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6
    except OSError:
        return 0.0


def _cpu_seconds(pid: int) -> float:
    """User and system time, that of ended children included."""
    try:
        return sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[11:15])) / _CLOCK_HZ
    except OSError:
        return 0.0


def _fields(stat: Path) -> list[str]:
    """What follows the name, from the state on."""
    return stat.read_text().rpartition(")")[2].split()
