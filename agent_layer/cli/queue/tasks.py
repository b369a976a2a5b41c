"""Commands that list open work: ``tasks`` and ``rollouts``."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec
import typer

from agent_layer.cli.ui.links import print_run_link
from agent_layer.cli.ui.output import describe_seconds
from agent_layer.cli.ui.queue_text import (
    MAX_LOOKED_AT,
    describe_depth,
    describe_left_out,
    describe_none,
    describe_status,
    describe_tries,
    limit_rows,
    shorten_error,
)
from agent_layer.cli.ui.tables import Column, TableView, make_row
from agent_layer.cli.ui.watch import Format, Limit, Run, Watch, present
from agent_layer.dispatcher import (
    HELD,
    OVER,
    Dispatcher,
    GroupState,
    QueueInspector,
    RolloutList,
    RolloutState,
    connect,
    list_member_ids,
)
from agent_layer.errors import BadInputError
from agent_layer.schema import Split

_STATUSES = ("queued", "delayed", "paused", *HELD, *OVER)
"""Values of --status: the statuses of rollouts, and 'delayed' for queued ones in a back-off."""
_ORDER = (*OVER, *reversed(HELD), "paused", "queued")
"""Statuses, the most advanced first."""
_SHELVES: dict[str, RolloutList] = {
    **dict.fromkeys(HELD, "leases"),
    "delayed": "delayed",
    "paused": "paused",
    "dead": "dead",
}
"""List that contains the rollouts of a status, so that no search goes through all of them."""
_TASK = (
    Column("task", 0),
    Column("rollouts", 0),
    Column("usable", 1, is_number=True),
    Column("oldest", 2, is_number=True),
    Column("run", 3),
    Column("groups", 5, is_number=True),
    Column("type", 6),
    Column("split", 7),
)
_ROLLOUT = (
    Column("rollout", 0),
    Column("status", 0, is_state=True),
    Column("for", 1, is_number=True),
    Column("lease", 5),
    Column("attempts", 3),
    Column("worker", 4),
    Column("run", 6),
    Column("checkpoint", 7),
    Column("last error", 2, is_text=True),
)


class _TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a run with all of its open groups, one for each round."""

    task_id: str
    run: str
    task_type: str
    split: Split
    queued_at: float
    """When the oldest group was queued."""
    num_groups: int
    num_usable: int
    group_size: int
    """Usable rollouts that all of these groups need."""
    rollouts: dict[str, int]
    """Number of rollouts by status."""


def tasks(
    context: typer.Context, *, run: Run = None, limit: Limit = 32, watch: Watch = False, format_: Format = "table"
) -> None:
    """List tasks of open groups, oldest first, with their rollouts."""
    with connect(context.obj) as dispatcher:
        link = partial(print_run_link, context.obj, run, "fleet")
        present(partial(_see_tasks, dispatcher, run, limit), format_, watch=watch, link=link)


def rollouts(
    context: typer.Context,
    *,
    run: Run = None,
    status: Annotated[
        list[str] | None, typer.Option(help=f"With this one only; may be repeated: {', '.join(_STATUSES)}.")
    ] = None,
    limit: Limit = 32,
    watch: Watch = False,
    format_: Format = "table",
) -> None:
    """List rollouts of open groups, or with --status all in that status.

    A claimed rollout is 'leased' until the next heartbeat of its worker reports it as running, scoring or sealing.
    'for' is the time in the queue, or with the worker; 'lease' the time until another worker gets the rollout if its
    own stays silent.
    """
    for one in status or []:
        if one not in _STATUSES:
            raise BadInputError(f"--status {one}: expected one of {', '.join(_STATUSES)}; correct it")
    with connect(context.obj) as dispatcher:
        link = partial(print_run_link, context.obj, run, "fleet")
        present(partial(_see_rollouts, dispatcher, run, status or [], limit), format_, watch=watch, link=link)


def _see_tasks(dispatcher: Dispatcher, run: str | None, limit: int) -> TableView:
    stats, views = dispatcher.stats(), dispatcher.inspector
    states_by_task: dict[tuple[str, str], list[GroupState]] = {}
    has_more = False
    for group in views.read_groups(views.open_ids(run or "", MAX_LOOKED_AT)):
        has_more = (group.run, group.task_id) not in states_by_task and len(states_by_task) == limit
        if has_more:
            break
        states_by_task.setdefault((group.run, group.task_id), []).append(group)
    rows = list(_task_rows(list(states_by_task.values()), views))
    left_out = describe_left_out(limit, run, stats.num_open_groups, has_more=has_more)
    return TableView(
        summary=describe_depth(dispatcher, stats, run),
        columns=_TASK,
        cells=[_task_cells(row, stats.now) for row in rows],
        rows=[make_row(row) for row in rows],
        key=("run", "task_id"),
        notes=left_out,
        empty=describe_none(run),
    )


def _task_rows(states_by_task: list[list[GroupState]], views: QueueInspector) -> Iterator[_TaskRow]:
    counts = iter(views.tally([group for groups in states_by_task for group in groups]))
    for groups in states_by_task:
        statuses: Counter[str] = Counter()
        for _ in groups:
            statuses.update(next(counts))
        first = groups[0]
        yield _TaskRow(
            task_id=first.task_id,
            run=first.run,
            task_type=first.task_type,
            split=first.split,
            queued_at=first.queued_at,
            num_groups=len(groups),
            num_usable=sum(group.num_usable for group in groups),
            group_size=sum(group.group_size for group in groups),
            rollouts=dict(statuses),
        )


def _task_cells(row: _TaskRow, now: float) -> dict[str, str]:
    return {
        "task": row.task_id,
        "rollouts": ", ".join(f"{row.rollouts[one]} {one}" for one in _ORDER if one in row.rollouts),
        "usable": f"{row.num_usable} of {row.group_size}",
        "oldest": describe_seconds(max(0, now - row.queued_at)),
        "run": row.run,
        "groups": str(row.num_groups),
        "type": row.task_type,
        "split": row.split,
    }


def _see_rollouts(dispatcher: Dispatcher, run: str | None, statuses: list[str], limit: int) -> TableView:
    stats = dispatcher.stats()
    found, has_more = limit_rows(_find_rollouts(dispatcher, run or "", statuses), limit)
    return TableView(
        summary=describe_depth(dispatcher, stats, run),
        columns=_ROLLOUT,
        cells=[_rollout_cells(state, stats.now) for state in found],
        rows=[make_row(state) for state in found],
        key=("rollout_id",),
        notes=describe_left_out(limit, run, max(stats.num_open_groups, stats.num_leased), has_more=has_more),
        empty=f"none is {' or '.join(statuses)}" if statuses else describe_none(run),
    )


def _find_rollouts(dispatcher: Dispatcher, run: str, statuses: list[str]) -> Iterator[RolloutState]:
    views, seen = dispatcher.inspector, set[str]()
    for state in views.read_rollouts(_ids(dispatcher, run, statuses)):
        is_meant = (
            not statuses or state.status in statuses or ("delayed" in statuses and state.delay_seconds is not None)
        )
        if is_meant and state.rollout_id not in seen:
            seen.add(state.rollout_id)
            yield state


def _ids(dispatcher: Dispatcher, run: str, statuses: list[str]) -> Iterator[str]:
    """Yield ids of all rollouts that have one of the statuses, and of some others."""
    views = dispatcher.inspector
    shelves: dict[RolloutList, None] = dict.fromkeys(_SHELVES[status] for status in statuses if status in _SHELVES)
    for shelf in shelves:
        yield from views.listed_ids(shelf, run, MAX_LOOKED_AT)
    if not statuses or not set(statuses) <= _SHELVES.keys():
        for group in views.read_groups(views.open_ids(run, MAX_LOOKED_AT)):
            yield from list_member_ids(group)


def _rollout_cells(state: RolloutState, now: float) -> dict[str, str]:
    cells = {
        "rollout": state.rollout_id,
        "status": describe_status(state),
        "for": describe_seconds(max(0, now - state.since)),
        "attempts": describe_tries(state),
        "run": state.run,
    }
    if state.lease_seconds is not None:
        cells["lease"] = f"{describe_seconds(state.lease_seconds)} left" if state.lease_seconds > 0 else "lapsed"
    texts = {"worker": state.worker, "checkpoint": state.checkpoint, "last error": (state.errors or [""])[-1]}
    return cells | {name: shorten_error(text) for name, text in texts.items() if text}
