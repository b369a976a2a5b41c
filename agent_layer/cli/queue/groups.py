"""Commands about groups: ``groups``, which lists them, and its show and cancel."""

from functools import partial
from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_link, print_run_link
from agent_layer.cli.ui.output import describe_seconds
from agent_layer.cli.ui.queue_text import (
    MAX_LOOKED_AT,
    choose,
    describe_depth,
    describe_left_out,
    describe_none,
    find_run,
    limit_rows,
)
from agent_layer.cli.ui.tables import Column, TableView, make_row
from agent_layer.cli.ui.watch import Format, Limit, Run, Watch, present
from agent_layer.dispatcher import Dispatcher, GroupState, connect
from agent_layer.errors import NotFoundError
from agent_layer.infra import format_count
from agent_layer.settings import Settings

_MAX_LINKS = 8
_COLUMNS = (
    Column("group", 0),
    Column("state", 0, is_state=True),
    Column("usable", 0, is_number=True),
    Column("launched", 3, is_number=True),
    Column("surplus", 4, is_number=True),
    Column("age", 1, is_number=True),
    Column("closed", 1),
    Column("took", 5, is_number=True),
    Column("cut off after", 6, is_number=True),
    Column("run", 2),
    Column("if short", 7),
    Column("type", 8),
    Column("split", 9),
)


def groups(
    context: typer.Context,
    *,
    run: Run = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Those that closed last, newest first; about 1,000 are remembered.")
    ] = False,
    limit: Limit = 32,
    watch: Watch = False,
    format_: Format = "table",
) -> None:
    """List open groups, oldest first, with the usable rollouts that each has and needs.

    'took' is the mean time of usable rollouts, 'cut off after' the mean time that surplus rollouts had run.
    'groups show' finds a closed group by its id for a week.
    """
    if context.invoked_subcommand is None:
        with connect(context.obj) as dispatcher:
            look = partial(_see_closed if closed else _see_open, dispatcher, run, limit)
            link = partial(print_run_link, context.obj, run, "fleet")
            present(look, format_, watch=watch, link=link)


def show(
    context: typer.Context,
    group_ids: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Open or closed.")],
    *,
    watch: Watch = False,
    format_: Format = "table",
) -> None:
    """Show these groups, closed ones too."""
    with connect(context.obj) as dispatcher:
        link = partial(_print_links, context.obj, dispatcher, group_ids)
        present(partial(_see_named, dispatcher, group_ids), format_, watch=watch, link=link)


def cancel(
    context: typer.Context,
    group_ids: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...")] = None,
    *,
    run: Annotated[str | None, typer.Option(help="All open ones of this run.")] = None,
) -> None:
    """Cancel what waits or runs of groups, model calls included; the groups close with what they have.

    agent-layer groups cancel --run nightly
    """
    choose("groups cancel", group_ids, {"--run": run})
    with connect(context.obj) as dispatcher:
        if run:
            find_run(dispatcher, run)
        ids = list(dispatcher.inspector.open_ids(run)) if run else _known(dispatcher, group_ids or [])
        cancelled = format_count(dispatcher.cancel(ids), "rollout")
        typer.echo(f"cancelled {cancelled} of {format_count(len(ids), 'group')}")


def _print_links(settings: Settings, dispatcher: Dispatcher, group_ids: list[str]) -> None:
    """Print a link to each group, or to the queue for those that nothing is stored of yet."""
    closed = [group.group_id for group in dispatcher.groups(group_ids[:_MAX_LINKS]) if group.is_closed]
    for group_id in closed:
        print_link(settings, "group", group_id)
    if not closed:
        print_link(settings, "fleet")


def _known(dispatcher: Dispatcher, group_ids: list[str]) -> list[str]:
    """Return the ids without repeats.

    Raises: NotFoundError: the dispatcher does not know one of them.
    """
    known = {group.group_id for group in dispatcher.groups(group_ids)}
    for group_id in group_ids:
        if group_id not in known:
            raise NotFoundError(
                f"group {group_id}: expected one that was submitted in the last week, found none; 'agent-layer groups'"
                " lists the open ones"
            )
    return list(dict.fromkeys(group_ids))


def _see_named(dispatcher: Dispatcher, group_ids: list[str]) -> TableView:
    found = dispatcher.groups(_known(dispatcher, group_ids))
    num_closed = sum(one.is_closed for one in found)
    return _sight(dispatcher, [f"{format_count(len(found), 'group')}, {num_closed:,} of them closed"], found)


def _see_closed(dispatcher: Dispatcher, run: str | None, limit: int) -> TableView:
    if run:
        find_run(dispatcher, run)
    newest = dispatcher.groups(dispatcher.inspector.closed_ids())
    found, has_more = limit_rows((group for group in newest if not run or group.run == run), limit)
    notes = [f"only the newest {limit:,} are shown; --limit shows more"] if has_more else []
    whole = sum(group.fill == "whole" for group in found)
    summary = f"{format_count(len(found), 'group')} that closed last, {whole:,} of them whole"
    return _sight(dispatcher, [summary], found, notes, "none has closed lately")


def _see_open(dispatcher: Dispatcher, run: str | None, limit: int) -> TableView:
    stats, views = dispatcher.stats(), dispatcher.inspector
    found, has_more = limit_rows(views.read_groups(views.open_ids(run or "", MAX_LOOKED_AT)), limit)
    notes = describe_left_out(limit, run, stats.num_open_groups, has_more=has_more)
    return _sight(dispatcher, describe_depth(dispatcher, stats, run), found, notes, describe_none(run))


def _sight(
    dispatcher: Dispatcher,
    summary: list[str],
    found: list[GroupState],
    notes: list[str] | None = None,
    empty: str = "none",
) -> TableView:
    now = dispatcher.stats().now
    return TableView(
        summary=summary,
        columns=_COLUMNS,
        cells=[_cells(group, now) for group in found],
        rows=[make_row(group) for group in found],
        key=("group_id",),
        notes=notes or [],
        empty=empty,
    )


def _cells(group: GroupState, now: float) -> dict[str, str]:
    cells = {
        "group": group.group_id,
        "state": group.fill or ("closed" if group.is_closed else f"{group.num_open} to go"),
        "usable": f"{group.num_usable} of {group.group_size}",
        "launched": str(group.num_launched),
        "surplus": str(group.num_surplus),
        "run": group.run,
        "if short": group.partial,
        "type": group.task_type,
        "split": group.split,
    }
    if group.closed_at is None:
        cells["age"] = describe_seconds(max(0, now - group.queued_at))
    else:
        cells["closed"] = f"{describe_seconds(max(0, now - group.closed_at))} ago"
    took = {"took": group.kept_seconds, "cut off after": group.surplus_seconds}
    return cells | {name: describe_seconds(seconds) for name, seconds in took.items() if seconds is not None}
