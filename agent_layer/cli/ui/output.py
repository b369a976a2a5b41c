"""This file holds how commands write what they found: as a table, as lines of JSON; and how sizes and times read.

This file holds the progress bar of commands that take a while; it is drawn on standard error and leaves nothing.
"""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from agent_layer.store.maintenance import Progress

_PIPE_WIDTH = 240
"""Columns of a table that goes to no terminal: enough that nothing is cut."""


def open_console() -> Console:
    """Make a console as wide as the terminal, or wide enough for everything where there is none."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def draw_table(table: Table) -> None:
    """Draw a table as wide as the terminal."""
    open_console().print(table)


def write_lines(records: Iterable[object]) -> None:
    """Write one line of JSON for each."""
    sys.stdout.buffer.writelines(msgspec.json.encode(record) + b"\n" for record in records)
    sys.stdout.flush()


def describe_size(num_bytes: float) -> str:
    """Write a size in the unit that suits it, with three digits."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if num_bytes < 1_000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1_000
    return f"{num_bytes:.3g} TB"


def describe_seconds(seconds: float) -> str:
    """Write how long something takes with its two largest units: 3.2s, 42s, 3m20s, 2h5m, 3d4h."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{int(seconds)}s"
    for large, small, size, smaller, end in (("m", "s", 60, 1, 3_600), ("h", "m", 3_600, 60, 86_400)):
        if seconds < end:
            return f"{int(seconds // size)}{large}{int(seconds % size // smaller)}{small}"
    return f"{int(seconds // 86_400)}d{int(seconds % 86_400 // 3_600)}h"


@contextmanager
def show_progress(subject: str) -> Generator[Progress]:
    """Draw a bar while the block runs; what it is given is called with (things done, things in all)."""
    columns = (TextColumn(subject), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(subject, total=None)
        yield lambda num_done, num_all: bar.update(task, completed=num_done, total=num_all)
