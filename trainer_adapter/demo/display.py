"""Display of a running demo: success, calls per second, staleness and phase."""

from collections.abc import Sequence
from statistics import fmean
from types import TracebackType
from typing import Self

import psutil
from rich.console import Console
from rich.live import Live
from rich.table import Table

from agent_layer.health import StepProgress
from agent_layer.infra import SupervisedProcess


class Display:
    """A live table on a terminal, a line per step elsewhere. Keeps the data of the report."""

    def __init__(self, run: str, num_steps: int) -> None:
        self.console = Console(markup=False)
        self.steps: list[StepProgress] = []
        self.peak_mib: dict[str, float] = {}
        """By process name, largest resident memory seen, children included."""
        self.num_before = 0
        """Steps that earlier starts of the run did."""
        self._run = run
        self._num_steps = num_steps
        self._phase = "starting"
        self._is_live = self.console.is_terminal
        self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_live:
            self._live.stop()

    def set_phase(self, phase: str) -> None:
        """Show the current phase."""
        if not self._is_live and phase.partition("(")[0] != self._phase.partition("(")[0]:
            self.console.print(f"{self._run}: {phase.partition('(')[0].strip()}")
        self._phase = phase

    def show_started(self) -> None:
        """Show that all processes run."""
        self.set_phase("waiting for the first rollouts")

    def show(self, steps: Sequence[StepProgress], processes: dict[str, SupervisedProcess]) -> None:
        """Show the reports of the trainer so far."""
        if len(steps) > len(self.steps):
            new = steps[len(self.steps) :]
            if not self.steps and new[0].step < new[-1].step:
                self.num_before = len(new)
            self.steps = list(steps)
            self.set_phase("rollouts and updates")
            if not self._is_live:
                for step in new[-1:]:
                    self.console.print(_line(step, self.steps, self._num_steps))
        for name, process in processes.items():
            self.peak_mib[name] = max(self.peak_mib.get(name, 0.0), _resident_mib(process))

    def _render(self) -> Table:
        table = Table(title=f"run {self._run}", show_header=False, min_width=56)
        table.add_row("phase", self._phase)
        if self.steps:
            last = self.steps[-1]
            done = last.step / self._num_steps
            bar = "█" * round(30 * done) + "·" * (30 - round(30 * done))
            table.add_row("step", f"{bar} {last.step}/{self._num_steps}")
            table.add_row("success", f"{last.success or 0:.2f}   last five {mean_success(self.steps[-5:]):.2f}")
            table.add_row("policy version", str(last.policy_version))
            table.add_row("calls per second", f"{calls_per_second(self.steps[-6:]):.0f}")
            table.add_row("staleness", f"mean {last.staleness_mean:.2f}   max {last.staleness_max}")
            seconds = (
                f"wait {last.wait_seconds:.1f}   update {last.update_seconds:.1f}   switch {last.switch_seconds:.2f}"
            )
            table.add_row("seconds of the last step", seconds)
        return table


def mean_success(steps: Sequence[StepProgress]) -> float:
    """Return the success rate of these steps, as a mean over hidden numbers; 0 without any."""
    found: dict[str, list[float]] = {}
    for step in steps:
        for task_id, success in step.success_by_task.items():
            found.setdefault(task_id, []).append(success)
    return fmean(fmean(successes) for successes in found.values()) if found else 0.0


def calls_per_second(steps: Sequence[StepProgress]) -> float:
    """Return model calls per second between the ends of the first and last step; 0 for fewer than two."""
    if len(steps) < 2:
        return 0.0
    seconds = steps[-1].ended_at - steps[0].ended_at
    return sum(step.num_calls for step in steps[1:]) / seconds if seconds > 0 else 0.0


def _line(step: StepProgress, steps: Sequence[StepProgress], num_steps: int) -> str:
    return (
        f"step {step.step:3d}/{num_steps}  success {step.success or 0:.2f}  last five {mean_success(steps[-5:]):.2f}"
        f"  calls/s {calls_per_second(steps[-6:]):3.0f}  staleness {step.staleness_mean:.2f}"
        f"  wait {step.wait_seconds:.1f} s  update {step.update_seconds:.1f} s  switch {step.switch_seconds:.2f} s"
    )


def _resident_mib(process: SupervisedProcess) -> float:
    """Return the resident memory of a process and its children in MiB; 0 when it has ended."""
    try:
        parent = psutil.Process(process.process.pid)
        family = [parent, *parent.children(recursive=True)]
        return sum(member.memory_info().rss for member in family) / 2**20
    except psutil.NoSuchProcess:
        return 0.0
