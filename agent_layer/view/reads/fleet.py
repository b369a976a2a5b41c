"""What runs now: workers and what they hold, what waits and why, dead letters, sandboxes."""

from collections import Counter
from itertools import islice
from typing import Final, Literal

import msgspec

from agent_layer.dispatcher import Dispatcher, WorkerState
from agent_layer.schema import make_trajectory_id
from agent_layer.state import read_taken_sandboxes
from agent_layer.view.answers.fleet import (
    Backlog,
    BoxLine,
    BoxList,
    DeadLine,
    DeadList,
    ErrorCount,
    LeaseLine,
    QueueAnswer,
    QueueTotals,
    RunQueue,
    WorkerLine,
    WorkerList,
)
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext, refuse_archive

_MAX_LEASES: Final = 200
_MAX_ERROR_LENGTH: Final = 160
_AGE_SECONDS: Final = 5.0
"""While rollouts are held, the view of the fleet is drawn again so often: it shows for how long."""


def list_workers(source: ReadContext, _: RequestParams) -> WorkerList:
    """List the workers that were seen in the last day."""
    lease_seconds = source.settings.lease_seconds
    return WorkerList(
        items=[_worker(one, lease_seconds) for one in _dispatcher(source).workers()], lease_seconds=lease_seconds
    )


def show_queue(source: ReadContext, _: RequestParams) -> QueueAnswer:
    """Return what waits, what for, and what runs."""
    dispatcher = _dispatcher(source)
    stats, inspector = dispatcher.stats(), dispatcher.inspector
    lines = [_worker(one, source.settings.lease_seconds) for one in dispatcher.workers()]
    # what is left of a lease when a heartbeat is late by half of its interval
    spare_seconds = max(0.0, source.settings.lease_seconds - 1.5 * source.settings.heartbeat_seconds)
    offers = [set(one.offers) for one in lines if one.state == "up"]
    held = inspector.read_rollouts(islice(inspector.listed_ids("leases"), _MAX_LEASES))
    return QueueAnswer(
        now=stats.now,
        totals=QueueTotals.from_record(stats),
        runs=[RunQueue.from_record(one, causes=dict(one.causes)) for one in dispatcher.runs()],
        backlog=[
            Backlog(needs=sorted(needs), num=num, num_workers=sum(needs <= offered for offered in offers))
            for needs, num in sorted(inspector.needs().items(), key=lambda one: (-one[1], sorted(one[0])))
        ],
        leases=[
            LeaseLine.from_record(
                one,
                trajectory_id=make_trajectory_id(one.rollout_id, max(0, one.num_attempts - 1)),
                is_lapsing=one.lease_seconds < spare_seconds,
            )
            for one in held
            if one.lease_seconds is not None
        ],
    )


def show_fleet_state(source: ReadContext) -> object:
    """Return what equals its like of a moment ago unless something changed that a view of the fleet shows."""
    if source.is_archive:
        return None
    dispatcher = _dispatcher(source)
    stats, lease_seconds = dispatcher.stats(), source.settings.lease_seconds
    ages = int(stats.now / _AGE_SECONDS) if stats.num_leased else 0
    workers = [(one.worker, _state(one, lease_seconds), one.about) for one in dispatcher.workers()]
    return msgspec.structs.replace(stats, now=0.0), workers, ages


def list_dead(source: ReadContext, params: RequestParams) -> DeadList:
    """List dead letters, newest first."""
    dispatcher, limit = _dispatcher(source), params.number("limit", 50, 1, 500)
    found = dispatcher.dead(limit)
    counts = Counter(" ".join(one.errors[-1].split())[:_MAX_ERROR_LENGTH] for one in found if one.errors)
    return DeadList(
        total=dispatcher.stats().num_dead,
        items=[DeadLine.from_record(one, died_at=one.since) for one in found],
        by_error=[ErrorCount(error=error, num=num) for error, num in counts.most_common()],
    )


def list_sandboxes(source: ReadContext, _: RequestParams) -> BoxList:
    """List the sandboxes that workers of this machine have taken. Raises: NotFoundError: there is only a bucket."""
    refuse_archive(source, "sandboxes")
    return BoxList(items=[BoxLine.from_record(one) for one in read_taken_sandboxes()])


def _dispatcher(source: ReadContext) -> Dispatcher:
    refuse_archive(source, "queue")
    return source.dispatcher


def _worker(one: WorkerState, lease_seconds: float) -> WorkerLine:
    slots, held, agent = (one.about.get(name) for name in ("slots", "held", "agent"))
    return WorkerLine.from_record(
        one,
        state=_state(one, lease_seconds),
        slots=slots if isinstance(slots, int) else None,
        held=held if isinstance(held, int) else None,
        agent=str(agent) if agent else None,
        offers=str(one.about.get("offers") or "").split(),
    )


def _state(one: WorkerState, lease_seconds: float) -> Literal["up", "draining", "silent"]:
    if one.silent_seconds > lease_seconds:
        return "silent"
    return "draining" if one.is_draining else "up"
