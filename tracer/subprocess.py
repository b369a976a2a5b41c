"""Runs a program inside a rollout: the address of its model is in its environment.

A program that ``agent-layer trace`` or ``tracer.inject`` starts records into the log directory of its starter.
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
from tracer.propagation import OPERATOR_VARIABLES, enter_environment, log_variables

_BOOTSTRAP = Path(__file__).parent / "bootstrap"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_POLL_SECONDS = 0.01


@dataclass
class Program:
    """A command, and its result."""

    command: Sequence[str]
    settings: Settings
    trajectory_id: str = ""
    status: int = 0
    """Exit status; 128 + n when signal n ended it, as in shells."""

    def run(self, rollout: Rollout) -> None:
        """Run the command to its end, forward signals, and wait until its own records are in the store.

        Raises: AgentFailedError: its exit status is not 0.
        """
        self.trajectory_id = rollout.trajectory_id
        environment = _environment(rollout, self.settings)
        with _start(self.command, environment) as process:
            while (status := process.poll()) is None:  # a signal right before a blocking wait is handled at its end
                time.sleep(_POLL_SECONDS)
        self.status = 128 - status if status < 0 else status
        # logs that are here now, those of the program included
        logs = {path.stem for ending in (OPEN, CLOSED) for path in self.settings.log_dir.glob(f"*-*{ending}")}
        deadline = time.monotonic() + self.settings.flush_seconds
        while time.monotonic() < deadline and any(not rollout.sink.is_settled(name) for name in logs):
            time.sleep(_POLL_SECONDS)
        if self.status:
            raise AgentFailedError(f"command {self.command[0]!r}: expected exit status 0, found {self.status}")


def _environment(rollout: Rollout, settings: Settings) -> dict[str, str]:
    """Return the variables of the program: those of this process, without the operator's."""
    variables = {name: value for name, value in program_environment().items() if name not in OPERATOR_VARIABLES}
    path = [str(_BOOTSTRAP), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return enter_environment(variables | log_variables(settings), rollout)


@contextmanager
def _start(command: Sequence[str], environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """Context manager: start a program and forward all signals to it, also those that arrive before it runs.

    Raises: BadInputError: the program cannot be started.
    """
    early, process = list[int](), None

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT or not sys.stdin.isatty():  # a terminal signals the program itself
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise BadInputError(
                f"command {command[0]!r}: expected a program that can be started, found {error.strerror!r}; check that"
                " its first line names its interpreter, or start it with one, such as 'sh' or 'python'"
            ) from error
        for number in early:
            process.send_signal(number)
        yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
