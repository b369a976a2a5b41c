"""Tables that fit the terminal, for looks at the dispatcher and pages of trajectories."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_layer.cli.ui.output import defuse
from agent_layer.schema import JsonObject
from agent_layer.times import format_time

_GAP = 2
"""Blanks between columns."""
_LEAST_TEXT = 32
"""Least width to which a column of text is cut."""
_QUIET = "dim"
_STYLES = {
    **dict.fromkeys(("dead", "silent", "dropped", "failed", "lost"), "red"),
    **dict.fromkeys(("paused", "draining", "retry", "truncated", "short"), "yellow"),
    **dict.fromkeys(("running", "scoring", "sealing", "goes", "up", "whole", "completed"), "green"),
    **dict.fromkeys(("queued", "cancelled", "done"), _QUIET),
}
"""Style by the first word of a state, on terminals that have colours."""
_TIMES = ("queued_at", "closed_at", "since", "seen_at")


class Column(NamedTuple):
    """One column of a table."""

    name: str
    rank: int
    """If room is short, columns of the highest rank go first. 0: never."""
    is_text: bool = False
    """Long, and may be cut; at most one of a table."""
    is_number: bool = False
    is_state: bool = False
    """Its colour says whether all is well."""


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found, for both formats."""

    summary: list[str]
    """Lines over the table."""
    columns: Sequence[Column]
    cells: list[dict[str, str]]
    """[num_rows] text by name of column; a missing one is a dash."""
    rows: list[JsonObject]
    """[num_rows] as JSON."""
    key: Sequence[str]
    """Fields that identify a row from one look to the next."""
    notes: list[str] = []
    """Sentences under the table."""
    empty: str = "none"
    """Line in place of a table without rows: what to type to get some."""


def make_row(state: msgspec.Struct) -> JsonObject:
    """Return the record's fields, times as RFC 3339 in UTC."""
    row: JsonObject = msgspec.to_builtins(state)
    return {name: format_time(at) if name in _TIMES and isinstance(at, float) else at for name, at in row.items()}


def draw(sight: TableView, width: int, height: int | None = None) -> RenderableType:
    """Draw a table with its summary and its notes.

    Args:
        sight: what was found.
        width: columns of the terminal.
        height: its lines; rows that do not fit are counted, not shown. None: no limit.
    """
    above, notes = _wrap(sight.summary, width), list(sight.notes)
    columns, left_out = _fit(sight.columns, sight.cells, width)
    if left_out and sight.cells:
        notes.append(f"too narrow for: {', '.join(left_out)}; '--format jsonl' has everything")
    below = _wrap(notes, width)
    room = None if height is None else max(1, height - len(above) - len(below) - 4)
    shown = sight.cells[:room]
    if len(shown) < len(sight.cells):
        below = [f"{len(sight.cells) - len(shown)} more rows do not fit", *below]
    table = _table(columns, shown, width) if shown else Group(*(Text(line) for line in _wrap([sight.empty], width)))
    return Group(*(Text(line) for line in above), table, *(Text(line, style=_QUIET) for line in below))


def _wrap(lines: Sequence[str], width: int) -> list[str]:
    cut = textwrap.TextWrapper(max(width, 20), subsequent_indent="  ", break_on_hyphens=False)
    return [part for line in lines for part in cut.wrap(defuse(line))]


def _fit(columns: Sequence[Column], cells: Sequence[Mapping[str, str]], width: int) -> tuple[list[Column], list[str]]:
    """Return the columns that fit, and the names of the others."""
    kept = [column for column in columns if column.rank == 0 or any(column.name in row for row in cells)]
    left_out: list[str] = []
    while sum(_least(column, cells) + _GAP for column in kept) - _GAP > width:
        widest = max(kept, key=lambda column: column.rank)
        if widest.rank == 0:
            break
        kept.remove(widest)
        left_out.append(widest.name)
    return kept, left_out


def _natural(column: Column, cells: Sequence[Mapping[str, str]]) -> int:
    return max(cell_len(column.name), *(cell_len(row.get(column.name, "-")) for row in cells), 0)


def _least(column: Column, cells: Sequence[Mapping[str, str]]) -> int:
    natural = _natural(column, cells)
    return min(natural, _LEAST_TEXT) if column.is_text else natural


def _table(columns: Sequence[Column], cells: Sequence[Mapping[str, str]], width: int) -> Table:
    table = Table(box=None, pad_edge=False)
    room = width - sum(_natural(column, cells) + _GAP for column in columns if not column.is_text)
    for column in columns:
        table.add_column(
            column.name,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.is_number else "left",
            max_width=max(room, 1) if column.is_text else None,
        )
    for row in cells:
        table.add_row(*(_cell(column, row.get(column.name)) for column in columns))
    return table


def _cell(column: Column, text: str | None) -> Text:
    if text is None:
        return Text("-", style=_QUIET)
    return Text(defuse(text), style=_STYLES.get(text.partition(" ")[0], "") if column.is_state else "")
