"""Reaper: a process that runs a command and kills every process that the command leaves behind.

It is a subreaper (Linux): descendants cannot escape it, not even daemons in sessions of their own. When its child has
ended, or its lifeline is cut, it kills all that is left. ``python reaper.py CHANNEL COMMAND …`` runs a command; the
lifeline is then standard input, and the command inherits the descriptor CHANNEL, or none for ``-``.

Standard library only: this file runs by path, under ``python -I -S``. It is also the only user of prctl.
"""

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
"""Numbers of prctl."""
REAPER_PROGRAM: Final = __file__
"""Path of this file, which runs without this project's packages."""
KILL_NOW = b"!"
"""Written into a lifeline to kill at once, without the grace period."""
_GRACE_SECONDS = 2.0
"""Seconds for a command to end by itself after the lifeline is cut; it has its own way to notice."""
_MAX_KILL_SECONDS = 10.0
"""A process that survives SIGKILL for this long, such as one of another user, is left alone."""
_POLL_SECONDS = 0.001
_FOR_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that a program may send to its group, or that another process sends to end it; the reaper ignores them."""


def become_subreaper() -> None:
    """Become the parent of all descendants that lose theirs."""
    _prctl(_SET_SUBREAPER, 1)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies; SIGKILL at once if it already has.

    Args:
        parent: its process id, read before the fork.
        number: signal to send.
    """
    _prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def list_children(pid: int) -> list[int]:
    """Return running and dead children of a process; none without /proc."""
    found: list[int] = []
    tasks = f"/proc/{pid}/task"
    with suppress(OSError):  # it has ended, or one of its threads
        for task in os.listdir(tasks):  # noqa: PTH208  # pathlib takes as long to import as all the rest
            with suppress(OSError), open(f"{tasks}/{task}/children", encoding="ascii") as children:  # noqa: PTH123
                found += map(int, children.read().split())
    return found


def kill_descendants(spared: Collection[int] = ()) -> None:
    """Kill and reap all descendants of this process, except the spared children and theirs."""
    deadline = time.monotonic() + _MAX_KILL_SECONDS
    while time.monotonic() < deadline:
        doomed = [pid for child in list_children(os.getpid()) if child not in spared for pid in _list_family(child)]
        for pid in doomed:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in doomed:
            with suppress(ChildProcessError):  # its own parent reaps it, or dies and leaves it to us
                os.waitpid(pid, os.WNOHANG)
        if not doomed:
            return
        time.sleep(_POLL_SECONDS)


def _list_family(pid: int) -> Iterator[int]:
    yield pid
    for child in list_children(pid):
        yield from _list_family(child)


class ChildExitPipe:
    """Becomes readable when a child of this process has ended."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.signal(signal.SIGCHLD, _ring)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def ended(self) -> Iterator[tuple[int, int]]:
        """Reap children that have ended; yield each with its status."""
        with suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass
        with suppress(ChildProcessError):
            while (one := os.waitpid(-1, os.WNOHANG))[0]:
                yield one


def _ring(*_: object) -> None:
    """Do nothing: Python writes the signal into the wakeup pipe."""


def reap(child: int, lifeline: int, grace_seconds: float) -> int:
    """Wait until the child has ended, and end it when the lifeline is cut; then kill all that is left below.

    Returns: the child's status as ``os.waitpid`` reports it.
    """
    exits, poll = ChildExitPipe(), select.poll()
    poll.register(exits.reader, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    deadline = float("inf")
    while True:
        for pid, status in exits.ended():
            if pid == child:
                kill_descendants()
                return status
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
        left_ms = None if deadline == float("inf") else max(1.0, (deadline - time.monotonic()) * 1000)
        for descriptor, _ in poll.poll(left_ms):
            if descriptor == lifeline:
                is_ordered = os.read(lifeline, 1) == KILL_NOW
                poll.unregister(lifeline)
                deadline = time.monotonic() + (0.0 if is_ordered else grace_seconds)


def exit_like(status: int) -> None:
    """End this process with the exit status, or the signal, of another one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 255)


def main(channel: int | None, command: list[str]) -> None:
    """Run a command until it ends; signals to the group of both reach the command alone."""
    become_subreaper()
    reaper = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_OTHERS)  # the command may be faster than this process
    if (child := os.fork()) == 0:
        die_with_parent(reaper)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would what it becomes
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execv(command[0], command)
    for number in _FOR_OTHERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if channel is not None:
        os.close(channel)
    exit_like(reap(child, 0, _GRACE_SECONDS))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1].isdecimal() else None, sys.argv[2:])
