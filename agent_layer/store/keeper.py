"""This file holds the keeper of the own Redis server: ``python -m agent_layer.store.keeper USERS_LOCK COMMAND …``.

It runs the server, starts it again should it die, and stops it once nobody holds the shared lock any more. It keeps
the exclusive lock until the server is gone, so that whoever comes meanwhile waits, and then starts a new one.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["keep"]

_SHORTEST_LIFE_SECONDS = 1.0
"""A server that dies sooner would die again."""


def keep(lock: Path, command: Sequence[str]) -> int:
    """Run the server until its last user is gone; give its exit status."""
    unused = threading.Event()
    threading.Thread(target=_await_last_user, args=(lock, unused), daemon=True).start()
    while True:
        started_at = time.monotonic()
        server = subprocess.Popen(command)
        while not unused.wait(0.1) and server.poll() is None:
            pass
        if unused.is_set():
            server.terminate()
            return server.wait()
        if time.monotonic() - started_at < _SHORTEST_LIFE_SECONDS:
            return server.wait()


def _await_last_user(lock: Path, unused: threading.Event) -> None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unused.set()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
