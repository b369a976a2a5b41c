"""What a person sees while a round runs: a live table on a terminal, a line now and then elsewhere.

It is drawn on standard error, so that standard output has the results alone.
"""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from envs.evaluation.driver import Progress
from envs.evaluation.figures.figures import collect_results, count_causes, mean_pass_rate
from envs.evaluation.rounds import Round

_LINE_SECONDS = 10.0
_BAR = 30


class LiveView:
    """Shows a round that runs; a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._round: Round | None = None
        self._progress: Progress | None = None
        self._phase = "starting"
        self._line_at = 0.0
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def set_phase(self, phase: str) -> None:
        """Show what is waited for; where there is no terminal, each phase is a line, however long it takes."""
        known, self._phase = self._phase, phase
        if not self._console.is_terminal and phase.partition("(")[0] != known.partition("(")[0]:
            self.say(f"{phase.partition('(')[0].strip()} …")

    def say(self, sentence: str) -> None:
        """Print a line that stays."""
        self._console.print(sentence, soft_wrap=True, markup=False)

    def begin(self, one: Round) -> None:
        """Show a round from now on."""
        self._round, self._phase = one, "rollouts"

    def show(self, progress: Progress) -> None:
        """Show a look at the round."""
        self._progress = progress
        if not self._console.is_terminal and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_SECONDS
            fields = [f"{name} {value}" for name, value in self._cells()]
            self._console.print(f"{self._round.name if self._round else ''}: {', '.join(fields)}", soft_wrap=True)

    def _cells(self) -> list[tuple[str, str]]:
        progress, one = self._progress, self._round
        if progress is None or one is None:
            return [("phase", self._phase)]
        results = collect_results(one.tasks, progress.attempts, one.yardstick)
        num_done = sum(len(result.rewards) for result in results)
        rate = mean_pass_rate(results, one.yardstick.threshold)
        causes = count_causes(progress.attempts)
        cost = sum(attempt.cost for attempt in progress.attempts)
        return [
            ("done", f"{num_done}/{progress.num_asked}"),
            ("running", str(progress.num_running)),
            ("pass@1", "-" if rate is None else f"{rate:.3f}"),
            *([("failures", " ".join(f"{cause} {num}" for cause, num in sorted(causes.items())))] if causes else []),
            *([("cost", f"{cost:.4f} $")] if cost else []),
            ("time left", _time_left(progress)),
        ]

    def _render(self) -> Table:
        table = Table(title=f"round {self._round.name}" if self._round else None, show_header=False, min_width=56)
        cells = self._cells()
        for name, value in cells:
            table.add_row(name, value)
        if self._progress is not None and self._progress.num_submitted:
            done = self._progress.num_ended / self._progress.num_submitted
            table.add_row("", "█" * round(_BAR * done) + "·" * (_BAR - round(_BAR * done)))
        return table


def _time_left(progress: Progress) -> str:
    """Estimate by the pace of this start."""
    num_left = progress.num_submitted - progress.num_ended
    if not progress.num_ended:
        return "-"
    seconds = int(progress.seconds / progress.num_ended * num_left)
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
