"""Supervisor of the embedded Redis server.

``python -m agent_layer.infra.redis.supervisor USERS_LOCK COMMAND …``.

It runs the server, restarts it after a crash, and stops it when no process holds the shared lock any more. It holds the
exclusive lock until the server has exited, so a new user waits, and then starts a new one. If the supervisor is killed,
the server ends, too; its users start both again. The server inherits the lock that marks it as supervised, so that no
two servers ever write one append-only file.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_layer.infra.processes import LOCK_DESCRIPTOR, try_lock

_SHORTEST_LIFE_SECONDS = 1.0
"""A server that exits sooner would fail again."""
_LOOK_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1


def supervise(users_lock: Path, command: Sequence[str]) -> int:
    """Run the server until its last user is gone; return its exit status."""
    while True:
        started_at = time.monotonic()
        server = subprocess.Popen(command, pass_fds=[LOCK_DESCRIPTOR], preexec_fn=_ending_with(os.getpid()))  # noqa: PLW1509  # this process has one thread
        while server.poll() is None:
            if try_lock(users_lock) is not None:
                server.terminate()
                return server.wait()
            time.sleep(_LOOK_SECONDS)
        if time.monotonic() - started_at < _SHORTEST_LIFE_SECONDS:
            return server.wait()


def _ending_with(parent: int) -> Callable[[], None] | None:
    """Hook for a child, so that the kernel ends it with its parent; None if this kernel cannot."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "prctl"):
        return None

    def bind() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before this
            os.kill(os.getpid(), signal.SIGKILL)

    return bind


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(supervise(Path(sys.argv[1]), sys.argv[2:]))
