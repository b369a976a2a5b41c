"""This file holds how a process is started that outlives its starter: a session of its own, output into a file."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK_DESCRIPTOR = 3
"""Under which number the new process finds the lock that it was handed."""


@dataclass(frozen=True)
class Detached:
    """A process that nobody waits for."""

    pid: int

    def has_ended(self) -> bool:
        """Whether it is gone; also clears it away if so."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:  # cleared away before, or the child of our parent
            return True


def start_detached(arguments: Sequence[str], environment: Mapping[str, str], log: Path, lock: int | None) -> Detached:
    """Start this Python with some arguments; a lock that it is handed holds for as long as it lives."""
    writes = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), writes, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        *([(os.POSIX_SPAWN_DUP2, lock, LOCK_DESCRIPTOR)] if lock is not None else []),
    ]
    command = [sys.executable, *arguments]
    return Detached(os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True))
