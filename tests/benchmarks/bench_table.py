"""The one table that ``make bench`` prints."""

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "print_figures"]


class Figure(msgspec.Struct, frozen=True):
    """One thing that was measured, beside its peer or floor in the same run."""

    what: str
    ours: str
    peer: str
    ratio: str
    aim: str


def print_figures(figures: list[Figure]) -> None:
    """Print them all."""
    table = Table("what", "ours", "peer or floor", "ratio", "aim", title="measured in one run")
    for figure in figures:
        table.add_row(figure.what, figure.ours, figure.peer, figure.ratio, figure.aim)
    Console(width=160).print(table)
