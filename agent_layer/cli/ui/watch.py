"""Looks at the dispatcher, shown once, or every second until Ctrl-C.

At a terminal the table is redrawn in its place. Elsewhere a new table follows, after an empty line, when more than
ages has changed. As JSON, only rows that changed follow; for a row that is gone, the fields that identify it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, TypeAlias

import typer
from rich.live import Live

from agent_layer.cli.ui.output import open_console, write_lines
from agent_layer.cli.ui.tables import TableView, draw
from agent_layer.schema import JsonObject

Format: TypeAlias = Annotated[Literal["table", "jsonl"], typer.Option("--format")]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=100_000, help="Most rows.")]
Run: TypeAlias = Annotated[str | None, typer.Option(help="Of this run only.")]
Watch: TypeAlias = Annotated[
    bool, typer.Option("--watch", help="Look again every second until Ctrl-C. As jsonl: only rows that changed.")
]

_FRAME_SECONDS = 1.0
_AGES = {"lease_seconds", "delay_seconds", "silent_seconds", "seen_at", "lately_seconds"}
"""Fields that change by themselves."""


def present(
    look: Callable[[], TableView],
    format_: Literal["table", "jsonl"],
    *,
    watch: bool,
    link: Callable[[], None] = lambda: None,
) -> None:
    """Show what a look finds; end without an error on Ctrl-C, and when the reader closes the pipe.

    Args:
        look: finds it.
        format_: of the output.
        watch: whether to look again and again.
        link: prints where the page shows the same; called beside tables, once.
    """
    if not watch:
        sight = look()
        if format_ == "jsonl":
            return write_lines(sight.rows)
        console = open_console()
        console.print(draw(sight, console.width))
        return link()
    if format_ == "table":
        link()  # above the table, which is redrawn
    try:
        if format_ == "jsonl":
            _stream(look)
        elif sys.stdout.isatty():
            _redraw(look)
        else:
            _append(look)
    except KeyboardInterrupt:
        return None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's own last flush fails, too
        return None


def _frames(look: Callable[[], TableView]) -> Iterator[TableView]:
    while True:
        yield look()
        time.sleep(_FRAME_SECONDS)


def _redraw(look: Callable[[], TableView]) -> None:  # kept: one of three ways to watch, beside each other
    console = open_console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for sight in _frames(look):
            live.update(draw(sight, console.width, console.height), refresh=True)


def _append(look: Callable[[], TableView]) -> None:
    console, shown = open_console(), None
    for sight in _frames(look):
        still = [_still(row) for row in sight.rows]
        if still != shown:
            with console.capture() as drawn:  # rich would end the program with 1 when the reader has gone
                console.print(draw(sight, console.width))
            sys.stdout.write(drawn.get() if shown is None else f"\n{drawn.get()}")
            sys.stdout.flush()
        shown = still


def _stream(look: Callable[[], TableView]) -> None:
    shown: dict[tuple[object, ...], JsonObject] = {}
    for sight in _frames(look):
        found = {tuple(row[name] for name in sight.key): row for row in sight.rows}
        changed = [row for key, row in found.items() if shown.get(key) != _still(row)]
        gone = [{**dict(zip(sight.key, key, strict=True)), "is_shown": False} for key in shown if key not in found]
        write_lines([*changed, *gone])
        shown = {key: _still(row) for key, row in found.items()}


def _still(row: JsonObject) -> JsonObject:
    return {name: value for name, value in row.items() if name not in _AGES}
