"""Child processes that end when their starter ends, even if the starter is killed.

``python -m agent_layer.infra.processes.supervised [--grace=SECONDS] [--keep=DESCRIPTOR] COMMAND …`` runs the command in
a process group of its own. It ends the group when its own standard input closes (the kernel closes it for a parent that
is killed), on SIGTERM, or when the command ends.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent_layer.infra.files import make_private, open_private
from agent_layer.infra.processes.reaper import die_with_parent

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL for a process group."""
_POLL_SECONDS = 0.05
_TAIL_LINES = 8


@dataclass(frozen=True)
class SupervisedProcess:
    """A running command; ``start_supervised`` starts one."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_running(self) -> bool:
        """Whether the command still runs."""
        return self.process.poll() is None

    @property
    def log_tail(self) -> str:
        """Last lines of the command's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def wait_until_up(self, is_up: Callable[[], bool], seconds: float) -> bool:
        """Wait until the command serves; False when it ended before, or the time is over."""
        deadline = time.monotonic() + seconds
        while not is_up():
            if not self.is_running or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def begin_stop(self) -> None:
        """Ask the command to end, without waiting; several can so end at the same time."""
        if self.process.stdin:
            self.process.stdin.close()

    def stop(self) -> None:
        """End the command and all that it started; returns when they are gone."""
        self.begin_stop()
        try:
            self.process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_supervised(
    command: Sequence[str], variables: Mapping[str, str], log: Path, *, kept: int | None = None
) -> SupervisedProcess:
    """Start a command that ends with this process.

    Args:
        command: program and arguments.
        variables: added to this process's environment.
        log: file to which its output is appended.
        kept: descriptor that the command inherits under its number.
    """
    make_private(log.parent)
    with open(log, "ab", opener=open_private) as output:
        process = subprocess.Popen(
            supervised_command(command, kept=kept),
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=() if kept is None else (kept,),
        )
    return SupervisedProcess(process, log)


def supervised_command(
    command: Sequence[str], grace_seconds: float = GRACE_SECONDS, kept: int | None = None
) -> list[str]:
    """Return the command line of a supervisor for a command; its standard input is to be a pipe that stays open."""
    options = [f"--grace={grace_seconds:g}", *([] if kept is None else [f"--keep={kept}"])]
    return [sys.executable, "-m", "agent_layer.infra.processes.supervised", *options, *command]


def supervise(command: Sequence[str], grace_seconds: float = GRACE_SECONDS, kept: int | None = None) -> int:
    """Run the command until it ends or standard input closes; return its exit status.

    Args:
        command: program and arguments.
        grace_seconds: between SIGTERM and SIGKILL, once standard input is closed.
        kept: descriptor that the command inherits.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        pass_fds=() if kept is None else (kept,),
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509  # there is one thread yet
    )

    def terminate(*_: object) -> None:
        _signal_group(process, signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    threading.Thread(target=_end_with_stdin, args=(process, grace_seconds), daemon=True).start()
    while (status := process.poll()) is None:  # short waits: Python handles a signal only after a wait returns
        time.sleep(_POLL_SECONDS)
    _signal_group(process, signal.SIGKILL)
    return status


def _end_with_stdin(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    while os.read(0, 4096):
        pass
    _signal_group(process, signal.SIGTERM)
    threading.Event().wait(grace_seconds)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group; this reaches what the command left behind even after its own end."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _main(arguments: Sequence[str]) -> int:
    options, command = dict[str, str](), list(arguments)
    while command[0].startswith(("--grace=", "--keep=")):
        name, _, value = command.pop(0).partition("=")
        options[name] = value
    kept = options.get("--keep")
    return supervise(command, float(options.get("--grace", GRACE_SECONDS)), None if kept is None else int(kept))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
