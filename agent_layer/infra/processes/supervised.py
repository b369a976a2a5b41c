"""This file holds the leash: a child process that ends when whoever started it ends, however that happens.

``python -m agent_layer.infra.processes.supervised [--grace=SECONDS] COMMAND …`` runs the command in a process
group of its own
and
ends the group when its own standard input closes (the kernel closes it for a parent that is killed), on
SIGTERM, or
when the command ends.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 10.0
"""Between asking a process group to end and ending it."""
_POLL_SECONDS = 0.05
_SET_DEATH_SIGNAL = 1
"""Number of prctl."""


@dataclass(frozen=True)
class SupervisedProcess:
    """A command on its leash."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_running(self) -> bool:
        """Whether the command still runs."""
        return self.process.poll() is None

    def wait_until_up(self, is_up: Callable[[], bool], seconds: float) -> bool:
        """Wait until it serves; False when it ended before, or does not within so many seconds."""
        deadline = time.monotonic() + seconds
        while not is_up():
            if not self.is_running or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @property
    def log_tail(self) -> str:
        """Last lines that the command wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])

    def stop(self) -> None:
        """End the command and all that it started; returns when they are gone."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_supervised(command: Sequence[str], variables: Mapping[str, str], log: Path) -> SupervisedProcess:
    """Start a command that ends with this process.

    Args:
        command: program and arguments.
        variables: what its environment has besides what this process has.
        log: file to which its output is appended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *command],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return SupervisedProcess(process, log)


def hold(command: Sequence[str], grace_seconds: float = GRACE_SECONDS) -> int:
    """Run the command until it ends or standard input closes; give its exit status.

    Args:
        command: program and arguments.
        grace_seconds: between asking it to end and ending it, once standard input is closed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=_end_with_leash,  # noqa: PLW1509  # there is one thread yet
    )

    def pass_on(*_: object) -> None:
        _signal(process, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    threading.Thread(target=_end_with_stdin, args=(process, grace_seconds), daemon=True).start()
    while (status := process.poll()) is None:  # in short turns: a signal just before a wait is heard after it
        time.sleep(_POLL_SECONDS)
    _signal(process, signal.SIGKILL)
    return status


def _end_with_leash() -> None:
    """Between fork and exec: be asked to end when the leash itself is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _end_with_stdin(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    while os.read(0, 4096):
        pass
    _signal(process, signal.SIGTERM)
    threading.Event().wait(grace_seconds)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group; what the command left behind is reached even after its own end."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _main(arguments: Sequence[str]) -> int:
    if arguments[0].startswith("--grace="):
        return hold(arguments[1:], float(arguments[0].partition("=")[2]))
    return hold(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
