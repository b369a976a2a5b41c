"""This file holds how commands write what they found: as a table, as lines of JSON; and how sizes read."""

import sys
from collections.abc import Iterable

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["describe_size", "draw_table", "write_lines"]

_PIPE_WIDTH = 240
"""Columns of a table that goes to no terminal: enough that nothing is cut."""


def draw_table(table: Table) -> None:
    """Draw a table as wide as the terminal."""
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


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
