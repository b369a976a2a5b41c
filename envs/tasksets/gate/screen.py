"""Reports and progress of checks and audits on a terminal."""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress as ProgressBar, TextColumn, TimeElapsedColumn
from rich.table import Table

from envs.tasksets.gate.gate import Progress
from envs.tasksets.gate.report import Finding, Report

_NUM_SHOWN: Final = 3
"""Findings of a kind that are shown."""
_NUM_TASKS: Final = 3
_MAX_EVIDENCE_LENGTH: Final = 400


@contextmanager
def show_progress(subject: str) -> Generator[Callable[[Progress], None]]:
    """Show how far a check or an audit is, on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=Console(stderr=True)) as bar:
        row = bar.add_task(subject, total=None)

        def tell(progress: Progress) -> None:
            bar.update(row, description=progress.subject, completed=progress.done, total=progress.total or None)

        yield tell


def print_report(report: Report) -> None:
    """Print what was scored, what was found, and what was not looked at."""
    console = Console(highlight=False)
    console.print(
        f"{report.kind} of {escape(report.taskset)} version {escape(report.version)}, seed {report.seed}:"
        f" {report.verdict};"
        f" {report.num_compared:,} tasks compared, {report.num_tasks:,} scored, {report.seconds:.0f} s"
    )
    counts = Table(box=None, pad_edge=False)
    for column in ("answers", "as they must be", "of"):
        counts.add_column(column, justify="left" if column == "answers" else "right")
    for name, (right, total) in report.counts.items():
        counts.add_row(name, str(right), str(total))
    console.print(counts)
    _print_findings(console, report.findings)
    if report.figures:
        console.print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.figures.items()))
    for note in report.notes:
        console.print(f"not looked at: {escape(note)}")
    if report.leave_out:
        then = "passes without them" if report.is_mendable else "fails without them, too"
        console.print(f"tasks to leave out: {len(report.leave_out)}; the set {then}")


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_code[finding.code].append(finding)
    for code, found in by_code.items():
        console.print(f"{found[0].severity}: {code}: {found[0].sentence}")
        for one in found[:_NUM_SHOWN]:
            more = f" and {len(one.tasks) - _NUM_TASKS} more" if len(one.tasks) > _NUM_TASKS else ""
            where = " ".join(filter(None, (", ".join(one.tasks[:_NUM_TASKS]) + more, one.script and f"({one.script})")))
            console.print(f"  {escape(where or 'the set')}: {escape(one.evidence[:_MAX_EVIDENCE_LENGTH])}")
        if len(found) > _NUM_SHOWN:
            console.print(f"  and {len(found) - _NUM_SHOWN} more")
