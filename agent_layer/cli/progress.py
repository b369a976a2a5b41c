"""This file holds the progress bar of commands that take a while; it is drawn on standard error and leaves nothing."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from agent_layer.store.rebuild import Progress

__all__ = ["show_progress"]


@contextmanager
def show_progress(subject: str) -> Generator[Progress]:
    """Draw a bar while the block runs; what it is given is called with (things done, things in all)."""
    columns = (TextColumn(subject), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(subject, total=None)
        yield lambda num_done, num_all: bar.update(task, completed=num_done, total=num_all)
