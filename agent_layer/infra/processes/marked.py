"""Processes that carry a mark: a variable of the environment with which they were started.

A process inherits it from its parent, however many sessions and daemons lie between them, so it tells whose descendant
a process is after all its ancestors were killed. A process that overwrites its environment to show a title carries none
(``SPT_NOENV=1`` keeps setproctitle from that).
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_MAX_KILL_SECONDS: Final = 10.0
"""A process that survives SIGKILL for this long, such as one that waits for a broken disk, is left alone."""
_POLL_SECONDS: Final = 0.02


def list_marked(name: str, value: str) -> list[int]:
    """Return running processes of this user with this variable, this one excepted; none without /proc."""
    mark, found = f"{name}={value}".encode(), list[int]()
    for directory in Path("/proc").glob("[0-9]*"):
        if _is_marked(pid := int(directory.name), mark) and pid != os.getpid():
            found.append(pid)
    return sorted(found)


def kill_marked(name: str, value: str) -> list[int]:
    """Kill the processes that ``list_marked`` finds, and those that they start meanwhile; return the killed ones."""
    deadline, killed = time.monotonic() + _MAX_KILL_SECONDS, set[int]()
    while (found := list_marked(name, value)) and time.monotonic() < deadline:
        for pid in found:
            if _kill(pid, f"{name}={value}".encode()):
                killed.add(pid)
        time.sleep(_POLL_SECONDS)
    return sorted(killed)


def _kill(pid: int, mark: bytes) -> bool:
    """Kill a process if it is still the one with the mark."""
    with suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(pid)
        try:
            if _is_marked(pid, mark):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # of another user, or it has ended
        return False
