"""This file holds the commands that answer questions about trajectories: ``query`` and ``show``."""

import sys
from typing import Annotated, Literal, cast

import msgspec
import typer

from agent_layer.cli.text import describe_trajectory, print_table
from agent_layer.errors import BadInputError
from agent_layer.schema.record import JsonObject
from agent_layer.store.display import show_row, show_step, show_trajectory
from agent_layer.store.policies import newest_policy
from agent_layer.store.query import Order
from agent_layer.store.reading import pick_step
from agent_layer.store.rows import TrajectoryRow
from agent_layer.store.store import Store, open_store
from agent_layer.store.times import parse_range

__all__ = ["register"]

_RANGE_HELP = "Both ends included, one may be left out: 5.., ..0.5, 10..20, or one number."
_TIME_HELP = "RFC 3339 in UTC, or so long ago: 90s, 2h, 3d."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(query)
    app.command()(show)


def query(
    context: typer.Context,
    *,
    run: Annotated[str | None, typer.Option()] = None,
    split: Annotated[str | None, typer.Option(help="train or eval.")] = None,
    task: Annotated[str | None, typer.Option()] = None,
    task_type: Annotated[str | None, typer.Option()] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Show this step of each; those without it are left out.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help=f"Policy versions. {_RANGE_HELP}")] = None,
    reward: Annotated[str | None, typer.Option(help=f"Reward of the rollout. {_RANGE_HELP}")] = None,
    status: Annotated[str | None, typer.Option(help="running, completed, truncated, failed, lost, ...")] = None,
    agent: Annotated[str | None, typer.Option(help="Name of an agent that made a call.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Started then or later. {_TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option(help=f"Started then or earlier. {_TIME_HELP}")] = None,
    accepted: Annotated[bool, typer.Option("--accepted/--any", help="Only what counts for its rollout.")] = False,
    order: Annotated[str, typer.Option(help="newest, oldest, reward or policy.")] = "newest",
    limit: Annotated[int, typer.Option()] = 32,
    cursor: Annotated[str | None, typer.Option(help="Of the page before; goes on behind it.")] = None,
    format_: Annotated[Literal["table", "jsonl"], typer.Option("--format")] = "table",
) -> None:
    """List trajectories, or with --step that step of each."""
    store = open_store(context.obj)
    versions = None if policy is None else parse_range(policy, "policy range")
    if versions:
        _check_versions(store, cast("str", policy), versions[0], run)
    page = store.query(
        run=run,
        split=split,
        task=task,
        task_type=task_type,
        step=step,
        policy=versions,
        reward=None if reward is None else parse_range(reward, "reward range"),
        status=status,
        agent=agent,
        since=since,
        until=until,
        accepted=accepted or None,
        order=cast("Order", order),
        limit=limit,
        cursor=cursor,
    )
    lines = [_line(store, row, step) for row in page.items]
    if format_ == "jsonl":
        _write_lines(lines)
    else:
        print_table(lines)
    if page.cursor:
        typer.echo(f"more: add --cursor '{page.cursor}'", err=True)


def show(
    context: typer.Context,
    trajectory: Annotated[str, typer.Argument(help="Its id, as 'query' lists it.")],
    step: Annotated[int | None, typer.Option(min=0, help="This step only.")] = None,
    format_: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
) -> None:
    """Show one trajectory, or one step of it."""
    store = open_store(context.obj)
    row = store.row(trajectory)
    shown = show_trajectory(row, store.get(trajectory)) if step is None else _line(store, row, step)
    if format_ == "json":
        _write_lines([shown])
    else:
        typer.echo("\n".join(describe_trajectory(shown)))


def _line(store: Store, row: TrajectoryRow, step: int | None) -> JsonObject:
    if step is None:
        return show_row(row)
    trajectory = store.get(row.trajectory_id)
    return {**show_row(row), "step": show_step(trajectory, pick_step(trajectory, step))}


def _write_lines(lines: list[JsonObject]) -> None:
    sys.stdout.buffer.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    sys.stdout.flush()


def _check_versions(store: Store, text: str, lowest: float | None, run: str | None) -> None:
    """Refuse a range of versions that nobody has made yet.

    Raises: BadInputError: its low end is above the newest version of the run, or of all runs.
    """
    runs = [run] if run else sorted(name.decode() for name in cast("set[bytes]", store.redis.smembers(store.keys.runs)))
    newest = [found for name in runs if (found := newest_policy(store.redis, store.keys, name))]
    if lowest is None or any(lowest <= policy.number for policy in newest):
        return
    known = ", ".join(f"{policy.number} of run {policy.run!r}" for policy in newest) or "no version at all"
    raise BadInputError(
        f"policy range {text!r}: expected it to begin at a version that exists, but the newest is {known};"
        " ask for an older one, or wait for the trainer"
    )
