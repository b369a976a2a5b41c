"""Contenders at work: worker processes and one submitter, frozen during measurements of others."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dispatch_tally import count_in, num_workers_in, waits_in
from proxies import HERE

__all__ = ["Contender", "Crew", "run_crew"]

_START_SECONDS = 90.0
_ROUND_SECONDS = 60.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.005
_NUM_WAKING = 20
"""Single tasks that do not count: a process that was frozen may first have to reconnect."""
_BEGIN_AT, _END_AT = 0.1, 0.95
"""Fractions of a round between which its speed is measured: every worker is busy there."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A queue that is measured, and how its processes are started."""

    name: str
    work: Sequence[Sequence[str]]
    """Commands of its workers."""
    submit: Sequence[str]
    variables: dict[str, str]
    num_workers: int
    """Processes that do tasks; one command may start several."""


class Crew:
    """A contender's processes."""

    def __init__(self, contender: Contender, directory: Path, orders: subprocess.Popen[str]) -> None:
        self.contender = contender
        self._directory = directory
        self._orders = orders
        self._groups: list[int] = []
        """Process groups of the workers."""

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Have one more worker."""
        self._groups.append(process.pid)

    def freeze(self) -> None:
        """Let no worker run."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them run again."""
        self._signal(signal.SIGCONT)

    def order(self, what: str, number: int) -> None:
        """Have tasks submitted; returns when they are."""
        self._orders.stdin.write(f"{what} {number}\n")
        self._orders.stdin.flush()
        if (answer := self._orders.stdout.readline()) != "done\n":
            raise RuntimeError(f"{self.contender.name}: expected 'done', found {answer!r}; see {self._directory}")

    def warm_up(self) -> None:
        """Wait until every worker has done something."""
        deadline = time.monotonic() + _START_SECONDS
        num = 0
        while num_workers_in(self._directory) < self.contender.num_workers:
            self.order("fill", 200)
            num += 200
            self._await_count(num, deadline)

    def rate(self, num_tasks: int) -> float:
        """Return tasks per second for ``num_tasks`` tasks that are all queued before the start."""
        self.freeze()
        before = count_in(self._directory)
        self.order("fill", num_tasks)
        deadline = time.monotonic() + _ROUND_SECONDS
        self.thaw()
        first, began = self._await_count(before + round(_BEGIN_AT * num_tasks), deadline)
        last, ended = self._await_count(before + round(_END_AT * num_tasks), deadline)
        self._await_count(before + num_tasks, deadline)
        self.freeze()
        return (last - first) / (ended - began)

    def waits(self, num_tasks: int) -> list[float]:
        """Seconds from asking to having it, for single tasks while there is nothing else to do."""
        self.thaw()
        self._ask(_NUM_WAKING)
        before = len(waits_in(self._directory))
        self._ask(num_tasks)
        self.freeze()
        return waits_in(self._directory)[before:]

    def _ask(self, num_tasks: int) -> None:
        before = count_in(self._directory)
        self.order("ask", num_tasks)
        self._await_count(before + num_tasks, time.monotonic() + _ROUND_SECONDS)

    def _await_count(self, num: int, deadline: float) -> tuple[int, float]:
        """Wait until ``num`` are done; return the number done, and the time."""
        while (found := count_in(self._directory)) < num:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.contender.name}: expected {num} tasks to be done, found {found}; see {self._directory}"
                )
            time.sleep(_POLL_SECONDS * random.uniform(0.5, 1.5))
        return found, time.monotonic()

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)


@contextmanager
def run_crew(contender: Contender, directory: Path) -> Iterator[Crew]:
    """Run its processes until the block ends; they are frozen to begin with."""
    directory.mkdir(parents=True)
    variables = {**os.environ, **contender.variables, "BENCH_TALLY": str(directory), "PYTHONPATH": _path()}
    with ExitStack() as cleanup:
        output = cleanup.enter_context((directory / "log").open("ab"))
        orders = cleanup.enter_context(
            subprocess.Popen(
                contender.submit,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        )
        if (answer := orders.stdout.readline()) != "ready\n":
            raise RuntimeError(f"{contender.name}: expected 'ready', found {answer!r}; see {directory / 'log'}")
        crew = Crew(contender, directory, orders)
        for command in contender.work:
            process = subprocess.Popen(
                command, env=variables, cwd=directory, stdout=output, stderr=output, start_new_session=True
            )
            cleanup.callback(_end, process)
            crew.add(process)
        crew.warm_up()
        crew.freeze()
        yield crew


def _path() -> str:
    return os.pathsep.join([str(HERE), str(HERE.parents[1])])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a worker with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
