"""Output of commands: tables, lines of JSON, sizes and times, and a progress bar.

The bar is drawn on standard error and leaves nothing behind.
"""

import shutil
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as ProgressBar, TextColumn, TimeRemainingColumn
from rich.table import Table

from agent_layer.store import Progress

_HIDDEN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""Characters that control a terminal, and the pictures that stand for them."""
_PIPE_SIZE = (240, 24)
"""Columns and lines without a terminal, unless COLUMNS says otherwise; enough that nothing is cut."""


def open_console() -> Console:
    """Open a console as wide as the terminal; without one, as COLUMNS says, else wide enough for everything."""
    return Console(width=None if sys.stdout.isatty() else shutil.get_terminal_size(_PIPE_SIZE).columns)


def defuse(text: str) -> str:
    """Return a text whose control characters are visible and do nothing.

    Models and tools write what is printed here: an escape sequence of theirs could rewrite the screen or the clipboard.
    """
    return text.translate(_HIDDEN)


def draw_table(table: Table) -> None:
    """Draw a table as wide as the terminal."""
    open_console().print(table)


def write_lines(records: Iterable[object]) -> None:
    """Write each record as one line of JSON."""
    sys.stdout.buffer.writelines(msgspec.json.encode(record) + b"\n" for record in records)
    sys.stdout.flush()


def describe_size(num_bytes: float) -> str:
    """Return a size in the unit that suits it, with three digits."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if num_bytes < 1_000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1_000
    return f"{num_bytes:.3g} TB"


def describe_seconds(seconds: float) -> str:
    """Return a duration in its two largest units: 3.2s, 42s, 3m20s, 2h5m, 3d4h."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{int(seconds)}s"
    for large, small, size, smaller, end in (("m", "s", 60, 1, 3_600), ("h", "m", 3_600, 60, 86_400)):
        if seconds < end:
            return f"{int(seconds // size)}{large}{int(seconds % size // smaller)}{small}"
    return f"{int(seconds // 86_400)}d{int(seconds % 86_400 // 3_600)}h"


@contextmanager
def show_progress(subject: str) -> Generator[Progress]:
    """Draw a bar while the block runs; yield a function to call with (things done, things in all)."""
    columns = (TextColumn(subject), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(subject, total=None)
        yield lambda num_done, num_all: bar.update(task, completed=num_done, total=num_all)
