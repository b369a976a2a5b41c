"""Keeper: starts what serves boxes, and removes what is left of them when the worker or that server has ended.

It is the parent of the zygote, or of the server of a single box, and keeps the worker's rights, which those give up.
Its standard input is its lifeline: the kernel closes it when the worker dies. ``kill -9`` of the worker so leaves
nothing.
"""

import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from envs.sandbox.inside import kernel

_LONGEST_END_SECONDS = 5.0
_POLL_SECONDS = 0.005


def keep(serve: Callable[[], None], prepare: Callable[[int], None], left: list[str]) -> None:
    """Run a function in a child until it returns or the lifeline is cut; then end everything.

    Args:
        serve: what the child does.
        prepare: what to do for the child meanwhile, by its process id.
        left: directories, of cgroups or of files, that are to be gone afterwards.
    """
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    if (child := os.fork()) == 0:
        code = 1
        try:
            serve()
            code = 0
        finally:
            os._exit(code)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker decides when to end
        signal.signal(number, signal.SIG_IGN)
    prepare(child)
    ended, poll = os.pidfd_open(child), select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN)
    poll.poll()
    end_everything(left)


def end_everything(left: list[str]) -> None:
    """Kill and reap all processes below this one, then remove directories."""
    _kill_family()
    for directory in left:
        _remove(directory)


def kill_descendants() -> None:
    """Kill all processes below this one, without waiting for their ends."""
    for pid in list_descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _kill_family() -> None:
    """Kill and reap all descendants."""
    deadline = time.monotonic() + _LONGEST_END_SECONDS
    while time.monotonic() < deadline:
        kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_POLL_SECONDS)


def list_descendants(pid: int) -> Iterator[int]:
    """Yield all processes below one, parents first."""
    with suppress(OSError, ValueError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            found = [int(one) for one in children.read().split()]
        for child in found:
            yield child
            yield from list_descendants(child)


def _remove(directory: str) -> None:
    if not directory.startswith("/sys/fs/cgroup/"):
        shutil.rmtree(directory, ignore_errors=True)
        return
    deadline = time.monotonic() + _LONGEST_END_SECONDS
    for folder, _, _ in os.walk(directory, topdown=False):
        while os.path.isdir(folder) and time.monotonic() < deadline:
            try:
                os.rmdir(folder)
            except OSError:  # its last process is still ending
                time.sleep(_POLL_SECONDS)
