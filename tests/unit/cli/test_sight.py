"""Dispatcher views as text: how they are drawn, and which lines are drawn again."""

import io
import json
from itertools import pairwise

import pytest
from rich.console import Console

from agent_layer.cli.ui import watch as dispatch_watch
from agent_layer.cli.ui.output import describe_seconds
from agent_layer.cli.ui.tables import Column, Sight, draw
from agent_layer.cli.ui.watch import present


def drawn(sight, width, height=None):
    """Lines on a terminal of that size."""
    console = Console(width=width, file=io.StringIO())
    console.print(draw(sight, width, height))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140])
def test_a_table_never_wraps_and_says_which_columns_it_had_no_room_for(width):
    columns = (Column("id", 0), Column("a", 1), Column("b", 3), Column("c", 2), Column("error", 4, is_text=True))
    cells = [{"id": "i" * 24, "a": "a" * 10, "b": "b" * 20, "c": "c" * 20, "error": "e" * 200}] * 3
    sight = Sight(summary=["all: " + "word " * 30], columns=columns, cells=cells, rows=[], key=())
    lines = drawn(sight, width)

    assert all(len(line.rstrip()) <= width for line in lines)
    assert sum(line.startswith("i" * 24) for line in lines) == 3
    shown = [column.name for column in columns if any(f" {column.name * 5}" in line for line in lines)]
    said = " ".join(lines)
    for column in columns[1:4]:
        assert (column.name in shown) != (column.name in said.partition("too narrow for: ")[2].partition(";")[0])


def test_rows_that_do_not_fit_the_terminal_are_counted():
    cells = [{"id": str(number)} for number in range(50)]
    sight = Sight(summary=["all"], columns=(Column("id", 0),), cells=cells, rows=[], key=())
    lines = drawn(sight, 80, 20)

    assert len(lines) <= 20
    assert "more rows do not fit" in lines[-1]
    assert int(lines[-1].split()[0]) + sum(line.strip().isdecimal() for line in lines) == 50


def test_spans_read_well_and_grow():
    spans = [0, 0.25, 3.2, 9.96, 42, 59.99, 60, 200, 3_599, 3_600, 7_500, 86_399, 86_400, 273_600]

    told = [describe_seconds(span) for span in spans]
    assert told == [
        *("0.0s", "0.2s", "3.2s", "9s", "42s", "59s", "1m0s", "3m20s", "59m59s", "1h0m", "2h5m", "23h59m"),
        *("1d0h", "3d4h"),
    ]
    assert all(one != other for one, other in pairwise(told))


@pytest.fixture
def watched(monkeypatch, capsys):
    """``watched(format, *frames)``: what is written while a look finds rows, then others, until Ctrl-C."""

    def watch(format_, *frames):
        left = iter(frames)

        def look():
            rows = next(left, None)
            if rows is None:
                raise KeyboardInterrupt
            cells = [{"id": row["id"]} for row in rows]
            return Sight(summary=["all"], columns=(Column("id", 0),), cells=cells, rows=rows, key=("id",))

        monkeypatch.setattr(dispatch_watch, "_FRAME_SECONDS", 0.0)
        present(look, format_, watch=True)
        return capsys.readouterr().out

    return watch


def test_what_only_grows_older_has_not_changed(watched):
    older = [[{"id": "a", "status": "leased", "lease_seconds": left}] for left in (9.0, 8.0, 7.0)]

    lines = [json.loads(line) for line in watched("jsonl", *older, [{"id": "a", "status": "scoring"}], []).splitlines()]
    assert lines == [older[0][0], {"id": "a", "status": "scoring"}, {"id": "a", "is_shown": False}]
    assert watched("table", *older, [], []).count("all") == 2
