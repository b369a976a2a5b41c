"""Commands about workers: ``workers``, which lists them, and ``workers drain``."""

from functools import partial
from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_link
from agent_layer.cli.ui.output import describe_seconds
from agent_layer.cli.ui.queue_text import choose, limit_rows
from agent_layer.cli.ui.tables import Column, TableView, make_row
from agent_layer.cli.ui.watch import Format, Limit, Watch, present
from agent_layer.dispatcher import Dispatcher, WorkerState, connect
from agent_layer.errors import NotFoundError
from agent_layer.infra import format_count
from agent_layer.schema import JsonObject
from agent_layer.settings import Settings

_COLUMNS = (
    Column("worker", 0),
    Column("state", 0, is_state=True),
    Column("seen", 0),
    Column("rollouts", 1, is_number=True),
    Column("slots", 2, is_number=True),
    Column("agent", 3),
    Column("offers", 4),
    Column("more", 5, is_text=True),
)
_REPORTED = ("slots", "held", "agent", "offers")
"""Reported fields that have their own columns."""


def workers(context: typer.Context, *, limit: Limit = 32, watch: Watch = False, format_: Format = "table") -> None:
    """List workers seen in the last day, longest silent first.

    A worker is 'silent' when its leases have lapsed, and 'draining' while it finishes its last rollouts. 'rollouts'
    counts those that run in its slots, and those that it scores and stores beside them.
    """
    if context.invoked_subcommand is None:
        with connect(context.obj) as dispatcher:
            link = partial(print_link, context.obj, "fleet")
            present(partial(_see, dispatcher, context.obj, limit), format_, watch=watch, link=link)


def drain(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[WORKER]...")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All that were seen in the last day.")] = False,
) -> None:
    """Drain workers: they claim nothing more, and exit when their rollouts have ended.

    agent-layer workers drain host-3k2d9x0a
    """
    choose("workers drain", names, {"--all": every})
    with connect(context.obj) as dispatcher:
        targets = [state.worker for state in dispatcher.workers()] if every else list(dict.fromkeys(names or []))
        drained = dispatcher.drain(targets) if targets else []
        num_drained = format_count(len(drained), "worker")
        typer.echo(f"told {num_drained} to end; 'agent-layer workers --watch' shows when they are gone")
        if unknown := [name for name in targets if name not in drained]:
            raise NotFoundError(
                f"worker {unknown[0]!r}: expected one that was seen in the last day, found none; 'agent-layer workers'"
                " lists them"
            )


def _see(dispatcher: Dispatcher, settings: Settings, limit: int) -> TableView:
    states = dispatcher.workers()
    found, has_more = limit_rows(states, limit)
    cells = [_cells(state, settings) for state in found]
    left_out = [f"{len(states) - limit:,} that were seen later are not shown; --limit shows more"] if has_more else []
    return TableView(
        summary=[_describe(states, settings)],
        columns=_COLUMNS,
        cells=cells,
        rows=[_row(state) for state in found],
        key=("worker",),
        notes=left_out,
        empty="none was seen in the last day: 'agent-layer work TARGET' starts one",
    )


def _describe(states: list[WorkerState], settings: Settings) -> str:
    alive = [state for state in states if _state(state, settings) != "silent"]
    num_draining = sum(state.is_draining for state in states)
    slots, held = (sum(_number(state, name) for state in alive) for name in ("slots", "held"))
    others = {"silent": len(states) - len(alive), "draining": num_draining}
    counts = [format_count(len(states), "worker"), *(f"{num:,} {state}" for state, num in others.items() if num)]
    return f"{', '.join(counts)}; {held:,} rollouts in {format_count(slots, 'slot')}"


def _state(state: WorkerState, settings: Settings) -> str:
    if state.silent_seconds > settings.lease_seconds:
        return "silent"
    return "draining" if state.is_draining else "up"


def _number(state: WorkerState, name: str) -> int:
    value = state.about.get(name)
    return value if isinstance(value, int) else 0


def _cells(state: WorkerState, settings: Settings) -> dict[str, str]:
    more = {name: value for name, value in state.about.items() if name not in _REPORTED}
    cells = {
        "worker": state.worker,
        "state": _state(state, settings),
        "seen": f"{describe_seconds(state.silent_seconds)} ago",
        "rollouts": f"{_number(state, 'held'):,}",
        "slots": str(state.about.get("slots", "?")),
    }
    agent = str(state.about.get("agent") or "")
    offers = str(state.about.get("offers") or "").split()
    notes = {"agent": agent, "offers": " ".join(one for one in offers if one.partition(":")[2] != agent)}
    notes["more"] = " ".join(f"{name}={value}" for name, value in more.items())
    return cells | {name: text for name, text in notes.items() if text}


def _row(state: WorkerState) -> JsonObject:
    """Return what the worker reports of itself, beside what the dispatcher knows of it."""
    row = make_row(state)
    del row["about"]
    return {**state.about, **row}
