"""This file holds the rollout that a process was started for, which its environment names.

A worker's command has the key of its rollout and nothing else: neither a log nor the store. The gateway records
its
model calls; what it judges itself goes to the gateway too; other records of it have no place to go. A program
that
``agent-layer trace`` or ``tracer.inject`` started records in the log directory of its starter.

This file holds how a program is run inside a rollout: told where its model is, in its environment alone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.recorder import CLOSED, OPEN
from agent_layer.settings import Settings, program_environment
from tracer.core import Rollout
from tracer.propagation import OPERATOR_VARIABLES, log_variables, rollout_variables

_BOOTSTRAP = Path(__file__).parent / "bootstrap"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_POLL_SECONDS = 0.01


@dataclass
class Program:
    """A command, and how it went."""

    command: Sequence[str]
    settings: Settings
    trajectory_id: str = ""
    status: int = 0
    """Exit status; 128 + n when signal n ended it, as shells say it."""

    def run(self, rollout: Rollout) -> None:
        """Run the command to its end, passing signals on, and wait until what it recorded itself is in the store.

        Raises: AgentFailedError: it ended with another status than 0.
        """
        self.trajectory_id = rollout.trajectory_id
        environment = _environment(rollout, self.settings)
        with _start(self.command, environment) as process:
            status = _wait_for_exit(process)
        self.status = 128 - status if status < 0 else status
        _await_logs(rollout, self.settings)
        if self.status:
            raise AgentFailedError(f"command {self.command[0]!r}: expected exit status 0, found {self.status}")


def _environment(rollout: Rollout, settings: Settings) -> dict[str, str]:
    """Give the program's variables: this process's own, without what only the operator may know."""
    variables = {name: value for name, value in program_environment().items() if name not in OPERATOR_VARIABLES}
    path = [str(_BOOTSTRAP), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return variables | log_variables(settings) | rollout_variables(rollout)


@contextmanager
def _start(command: Sequence[str], environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """Start a program that gets the signals which this process gets, from before it begins.

    Raises: BadInputError: the machine cannot run it.
    """
    early, process = list[int](), None

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT or not sys.stdin.isatty():  # a terminal tells the program itself
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        process = _open(command, environment)
        for number in early:
            process.send_signal(number)
        yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment)
    except OSError as error:
        raise BadInputError(
            f"command {command[0]!r}: expected a program that can be started, found {error.strerror!r}; see that its"
            " first line names its interpreter, or start it with one, such as 'sh' or 'python'"
        ) from error


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait in short turns: a signal that comes just before a longer one would be heard at its end only."""
    while (status := process.poll()) is None:
        time.sleep(_POLL_SECONDS)
    return status


def _await_logs(rollout: Rollout, settings: Settings) -> None:
    """Wait for the logs that lie here now, those of the program's processes among them; gone is stored."""
    waited_for = {path.stem for ending in (OPEN, CLOSED) for path in settings.log_dir.glob(f"*-*{ending}")}
    deadline = time.monotonic() + settings.flush_seconds
    while time.monotonic() < deadline and any(not rollout.sink.is_settled(name) for name in waited_for):
        time.sleep(_POLL_SECONDS)
