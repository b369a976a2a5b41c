"""Dispatcher views as text: how they are drawn, and which lines are drawn again."""

import io
import json
from itertools import pairwise

import pytest
from rich.console import Console

from agent_layer.cli.ui import watch as dispatch_watch
from agent_layer.cli.ui.output import describe_seconds, open_console
from agent_layer.cli.ui.tables import Column, TableView, draw
from agent_layer.cli.ui.trajectory_text import print_rows
from agent_layer.cli.ui.watch import present
from agent_layer.infra import format_count
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_row


def drawn(sight, width, height=None):
    """Lines on a terminal of that size."""
    console = Console(width=width, file=io.StringIO())
    console.print(draw(sight, width, height))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140])
def test_a_table_never_wraps_and_says_which_columns_it_had_no_room_for(width):
    columns = (Column("id", 0), Column("a", 1), Column("b", 3), Column("c", 2), Column("error", 4, is_text=True))
    cells = [{"id": "i" * 24, "a": "a" * 10, "b": "b" * 20, "c": "c" * 20, "error": "e" * 200}] * 3
    sight = TableView(summary=["all: " + "word " * 30], columns=columns, cells=cells, rows=[], key=())
    lines = drawn(sight, width)

    assert all(len(line.rstrip()) <= width for line in lines)
    assert sum(line.startswith("i" * 24) for line in lines) == 3
    shown = [column.name for column in columns if any(f" {column.name * 5}" in line for line in lines)]
    message = " ".join(lines)
    for column in columns[1:4]:
        assert (column.name in shown) != (column.name in message.partition("too narrow for: ")[2].partition(";")[0])


@pytest.mark.parametrize(("columns", "width"), [("100", 100), (None, 240), ("0", 240), ("wide", 240)])
def test_a_table_without_a_terminal_is_as_wide_as_columns_says(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)

    assert open_console().width == width


def test_at_120_columns_a_page_shows_task_run_and_accepted(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    row = TrajectoryRow(
        trajectory_id=f"{'a' * 32}.0-0",
        task_id="0123456789ab",
        run="nightly",
        status="completed",
        accepted=True,
        reward=0.5,
        policy_min=10,
        policy_max=12,
        agents=["researcher", "writer"],
        started_at=1.0,
    )

    print_rows([show_row(row)])
    printed = capsys.readouterr().out.split()
    assert {"task_id", "run", "accepted", "0123456789ab", "nightly", "yes"} <= set(printed)


def test_counts_have_their_plural():
    reported = [format_count(num, word) for num, word in ((0, "task"), (1, "task"), (2, "task"), (1_000, "trajectory"))]

    assert reported == ["0 tasks", "1 task", "2 tasks", "1,000 trajectories"]


def test_rows_that_do_not_fit_the_terminal_are_counted():
    cells = [{"id": str(number)} for number in range(50)]
    sight = TableView(summary=["all"], columns=(Column("id", 0),), cells=cells, rows=[], key=())
    lines = drawn(sight, 80, 20)

    assert len(lines) <= 20
    assert "more rows do not fit" in lines[-1]
    assert int(lines[-1].split()[0]) + sum(line.strip().isdecimal() for line in lines) == 50


def test_spans_read_well_and_grow():
    spans = [0, 0.25, 3.2, 9.96, 42, 59.99, 60, 200, 3_599, 3_600, 7_500, 86_399, 86_400, 273_600]

    reported = [describe_seconds(span) for span in spans]
    assert reported == [
        *("0.0s", "0.2s", "3.2s", "9s", "42s", "59s", "1m0s", "3m20s", "59m59s", "1h0m", "2h5m", "23h59m"),
        *("1d0h", "3d4h"),
    ]
    assert all(one != other for one, other in pairwise(reported))


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
            return TableView(summary=["all"], columns=(Column("id", 0),), cells=cells, rows=rows, key=("id",))

        monkeypatch.setattr(dispatch_watch, "_FRAME_SECONDS", 0.0)
        present(look, format_, watch=True)
        return capsys.readouterr().out

    return watch


def test_what_only_grows_older_has_not_changed(watched):
    older = [[{"id": "a", "status": "leased", "lease_seconds": left}] for left in (9.0, 8.0, 7.0)]

    lines = [json.loads(line) for line in watched("jsonl", *older, [{"id": "a", "status": "scoring"}], []).splitlines()]
    assert lines == [older[0][0], {"id": "a", "status": "scoring"}, {"id": "a", "is_shown": False}]
    assert watched("table", *older, [], []).count("all") == 2
