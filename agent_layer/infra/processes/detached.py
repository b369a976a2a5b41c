"""Processes that outlive their starter: a session of their own, output into a file."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK_DESCRIPTOR = 3
"""Number of the inherited lock's descriptor in the new process."""


@dataclass(frozen=True)
class Detached:
    """A detached process."""

    pid: int

    def has_ended(self) -> bool:
        """Whether it has ended; reaps it if so."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:  # reaped before, or the child of our parent
            return True


def start_detached(arguments: Sequence[str], environment: Mapping[str, str], log: Path, lock: int | None) -> Detached:
    """Start this Python with some arguments; an inherited lock holds until the process ends."""
    writes = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), writes, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        *([(os.POSIX_SPAWN_DUP2, lock, LOCK_DESCRIPTOR)] if lock is not None else []),
    ]
    command = [sys.executable, *arguments]
    pid = os.posix_spawn(
        *(sys.executable, command, environment),
        file_actions=actions,
        setsid=True,
        setsigmask=(),  # a starter that blocks or ignores signals must not make it deaf
        setsigdef=(signal.SIGTERM, signal.SIGINT),
    )
    return Detached(pid)
