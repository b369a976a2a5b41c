"""This file holds the commands that show what the dispatcher holds: tasks, rollouts, workers, groups, dead."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, cast

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from agent_layer.cli.output import draw_table, write_lines
from agent_layer.dispatcher.client import connect
from agent_layer.dispatcher.records import GroupState, RolloutState
from agent_layer.schema.record import JsonObject
from agent_layer.store.times import format_time

__all__ = ["register"]

Format: TypeAlias = Annotated[Literal["table", "jsonl"], typer.Option("--format")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (tasks, rollouts, workers, groups, dead):
        app.command()(command)


def tasks(context: typer.Context, format_: Format = "table") -> None:
    """List tasks of open groups, with what their rollouts do."""
    dispatcher = connect(context.obj)
    _print(_task_rows(dispatcher.groups(), dispatcher.rollouts()), format_)


def groups(context: typer.Context, format_: Format = "table") -> None:
    """List groups that are not closed yet, oldest first."""
    _print((_row(group) for group in connect(context.obj).groups()), format_)


def rollouts(context: typer.Context, format_: Format = "table") -> None:
    """List rollouts of open groups."""
    _print((_row(rollout) for rollout in connect(context.obj).rollouts()), format_)


def dead(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1)] = 32,
    format_: Format = "table",
) -> None:
    """List rollouts that failed too often, with their errors, newest first."""
    _print((_row(rollout) for rollout in connect(context.obj).dead(limit)), format_)


def workers(context: typer.Context, format_: Format = "table") -> None:
    """List workers that were seen in the last day, longest silent first."""
    states = connect(context.obj).workers()
    rows = ({"worker": one.worker, "silent_seconds": round(one.silent_seconds, 1), **one.about} for one in states)
    _print(rows, format_)


def _task_rows(open_groups: Sequence[GroupState], members: Sequence[RolloutState]) -> Iterable[JsonObject]:
    """One row for each task of each run: how many of its rollouts have which status."""
    task_of = {group.group_id: (group.run, group.task_id, group.task_type, group.split) for group in open_groups}
    statuses: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for rollout in members:
        if rollout.group_id in task_of:
            statuses[task_of[rollout.group_id]][rollout.status] += 1
    for (run, task_id, task_type, split), counts in statuses.items():
        yield {"task_id": task_id, "run": run, "task_type": task_type, "split": split, "rollouts": dict(counts)}


def _row(state: GroupState | RolloutState) -> JsonObject:
    """Give the record's fields, times as RFC 3339 in UTC."""
    row: JsonObject = msgspec.to_builtins(state)
    for name in ("queued_at", "closed_at", "since"):
        if isinstance(at := row.get(name), float):
            row[name] = format_time(at)
    return row


def _print(rows: Iterable[Mapping[str, object]], format_: Literal["table", "jsonl"]) -> None:
    found = list(rows)
    if format_ == "jsonl":
        write_lines(found)
        return
    if not found:
        typer.echo("none")
        return
    table = Table(box=None, pad_edge=False)
    for column in found[0]:
        table.add_column(column)
    for row in found:
        table.add_row(*(escape(_cell(row.get(column))) for column in found[0]))
    draw_table(table)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dict():
            return " ".join(f"{name}={count}" for name, count in cast("JsonObject", value).items())
        case list():
            return "; ".join(map(str, cast("list[object]", value))) or "-"
        case _:
            return str(value)
