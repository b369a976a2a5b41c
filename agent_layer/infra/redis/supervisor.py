"""Supervisor of the embedded Redis server: ``python -m agent_layer.infra.redis.supervisor USERS_LOCK COMMAND …``.

It runs the server, restarts it after a crash, and stops it when no process holds the shared lock any more. It holds the
exclusive lock until the server has exited, so a new user waits, and then starts a new one. If the supervisor is killed,
the server ends, too; its users start both again. The server inherits the lock that marks it as supervised, so that no
two servers ever write one append-only file.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from agent_layer.infra.processes.detached import LOCK_DESCRIPTOR
from agent_layer.infra.processes.locks import try_lock
from agent_layer.infra.processes.reaper import die_with_parent
from agent_layer.infra.processes.restart import RestartHistory, RestartPolicy

_RESTARTS = RestartPolicy(healthy_seconds=1.0, max_short=1)
"""A server that exits sooner would fail again."""
_POLL_SECONDS = 0.05


def supervise(users_lock: Path, command: Sequence[str]) -> int:
    """Run the server until its last user is gone; return its exit status."""
    history = RestartHistory(_RESTARTS)
    while True:
        started_at = time.monotonic()
        server = subprocess.Popen(
            command,
            pass_fds=[LOCK_DESCRIPTOR],
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509  # this process has one thread
        )
        while server.poll() is None:
            if _is_unused(users_lock):
                server.terminate()
                return server.wait()
            time.sleep(_POLL_SECONDS)
        history.record_exit(time.monotonic() - started_at)
        if history.must_give_up:
            return server.wait()


def _is_unused(users_lock: Path) -> bool:
    try:
        return try_lock(users_lock) is not None
    except FileNotFoundError:  # its directory was removed: no process can use it any more
        return True
    except OSError:  # the machine refuses a file for now (EMFILE, ENOSPC); it is asked again
        return False


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(supervise(Path(sys.argv[1]), sys.argv[2:]))
