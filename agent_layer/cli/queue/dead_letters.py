"""Commands about dead letters, rollouts given up after their last retry: ``dead`` and its list, retry and drop."""

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_link
from agent_layer.cli.ui.output import describe_seconds, write_lines
from agent_layer.cli.ui.queue_text import choose, describe_tries, find_run, limit_rows, shorten_error
from agent_layer.cli.ui.tables import Column, TableView, make_row
from agent_layer.cli.ui.watch import Format, Limit, Run, Watch, present
from agent_layer.dispatcher import Dispatcher, RolloutState, connect
from agent_layer.errors import NotFoundError
from agent_layer.infra import format_count
from agent_layer.store import Filters

_COLUMNS = (
    Column("rollout", 0),
    Column("died", 1),
    Column("attempts", 2),
    Column("worker", 4),
    Column("run", 3),
    Column("last error", 0, is_text=True),
)


Every = Annotated[bool, typer.Option("--all", help="All that were given up.")]
OfRun = Annotated[str | None, typer.Option("--run", help="All of this run.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[ROLLOUT]...")]


def dead(
    context: typer.Context, *, run: Run = None, limit: Limit = 32, watch: Watch = False, format_: Format = "table"
) -> None:
    """List dead letters, newest first: rollouts given up after their last retry, with the last error.

    agent-layer dead list --errors
    agent-layer dead retry --run nightly
    """
    if context.invoked_subcommand is None:
        with connect(context.obj) as dispatcher:
            link = partial(print_link, context.obj, "failures", filters=Filters(run=run))
            present(partial(_see, dispatcher, run, limit), format_, watch=watch, link=link)


def show(
    context: typer.Context,
    *,
    run: Run = None,
    limit: Limit = 32,
    errors: Annotated[bool, typer.Option("--errors", help="Show every error of each, with its attempt.")] = False,
    watch: Watch = False,
    format_: Format = "table",
) -> None:
    """List dead letters, newest first. As jsonl, with every error."""
    link = partial(print_link, context.obj, "failures", filters=Filters(run=run))
    with connect(context.obj) as dispatcher:
        if not errors:
            return present(partial(_see, dispatcher, run, limit), format_, watch=watch, link=link)
        found, has_more = _find(dispatcher, run, limit)
        if format_ == "jsonl":
            return write_lines(make_row(state) for state in found)
        for line in _describe(found, dispatcher.stats().now):
            typer.echo(line)
        if has_more:
            typer.echo(f"only the newest {limit:,} are shown; --limit shows more")
        return link()


def retry(context: typer.Context, names: Names = None, *, every: Every = False, run: OfRun = None) -> None:
    """Run dead rollouts again from the beginning; print their groups.

    If the group is still open, the rollout returns to its place. A group that was decided stays unchanged; its dead
    rollouts are queued as a new group.
    """
    choose("dead retry", names, {"--all": every, "--run": run})
    with connect(context.obj) as dispatcher:
        ids = _meant(dispatcher, names, run)
        groups = dispatcher.retry_dead(ids) if ids else []
        typer.echo(f"{format_count(len(ids), 'rollout')} will be tried again in {format_count(len(groups), 'group')}")
        for group_id in groups:
            typer.echo(group_id)


def drop(
    context: typer.Context,
    names: Names = None,
    *,
    every: Every = False,
    run: OfRun = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
) -> None:
    """Drop dead rollouts and their errors. At a terminal it asks first."""
    choose("dead drop", names, {"--all": every, "--run": run})
    with connect(context.obj) as dispatcher:
        ids = _meant(dispatcher, names, run)
        asks, meant = bool(ids) and not yes and sys.stdin.isatty(), format_count(len(ids), "dead rollout")
        if asks and not typer.confirm(f"forget {meant} and all of their errors?", err=True):
            typer.echo("nothing was changed", err=True)
            raise typer.Exit(1)
        num_dropped = dispatcher.drop_dead(ids) if ids else 0
        typer.echo(f"dropped {format_count(num_dropped, 'dead rollout')}")


def _meant(dispatcher: Dispatcher, names: Iterable[str] | None, run: str | None) -> list[str]:
    """Return ids of dead rollouts.

    Raises: NotFoundError: a named rollout is not dead, or the run is unknown.
    """
    if run:
        find_run(dispatcher, run)
    if not names:
        return list(dict.fromkeys(dispatcher.inspector.listed_ids("dead", run or "")))
    ids = list(dict.fromkeys(names))
    found = {state.rollout_id for state in dispatcher.inspector.dead(ids, len(ids))}
    for rollout_id in ids:
        if rollout_id not in found:
            raise NotFoundError(
                f"rollout {rollout_id}: expected one that was given up, found none; nothing was changed, 'agent-layer"
                " dead list' shows them"
            )
    return ids


def _find(dispatcher: Dispatcher, run: str | None, limit: int) -> tuple[list[RolloutState], bool]:
    if run:
        find_run(dispatcher, run)
    views = dispatcher.inspector
    return limit_rows(views.read_rollouts(views.listed_ids("dead", run or "")), limit)


def _see(dispatcher: Dispatcher, run: str | None, limit: int) -> TableView:
    stats = dispatcher.stats()
    found, has_more = _find(dispatcher, run, limit)
    notes = [f"only the newest {limit:,} are shown; --limit shows more"] if has_more else []
    if found:
        notes.append("'dead list --errors' shows every error; 'dead retry' tries them again, 'dead drop' forgets them")
    return TableView(
        summary=[_summary(stats.num_dead, run)],
        columns=_COLUMNS,
        cells=[_cells(state, stats.now) for state in found],
        rows=[make_row(state) for state in found],
        key=("rollout_id",),
        notes=notes,
    )


def _summary(num_dead: int, run: str | None) -> str:
    were = "was" if num_dead == 1 else "were"
    return f"{format_count(num_dead, 'rollout')} {were} given up" + (f", in all runs; of run {run}:" if run else "")


def _cells(state: RolloutState, now: float) -> dict[str, str]:
    cells = {
        "rollout": state.rollout_id,
        "died": f"{describe_seconds(max(0, now - state.since))} ago",
        "attempts": describe_tries(state),
        "run": state.run,
        "last error": shorten_error(state.errors[-1]) if state.errors else "-",
    }
    return {**cells, **({"worker": state.worker} if state.worker else {})}


def _describe(found: list[RolloutState], now: float) -> Iterator[str]:
    for state in found:
        died = f"{describe_seconds(max(0, now - state.since))} ago"
        yield f"{state.rollout_id}  run {state.run}, died {died} after {format_count(state.num_attempts, 'attempt')}"
        for attempt, error in zip(state.error_attempts, state.errors, strict=True):
            yield f"  attempt {attempt}: {error}".replace("\n", "\n    ")
    if not found:
        yield "none"
