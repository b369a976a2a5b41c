"""Commands about runs: ``runs``, which shows their progress, and pause, resume and share."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_link, print_run_link
from agent_layer.cli.ui.output import describe_seconds
from agent_layer.cli.ui.queue_text import describe_why, find_run, limit_rows
from agent_layer.cli.ui.tables import Column, TableView, make_row
from agent_layer.cli.ui.watch import Format, Limit, Run, Watch, present
from agent_layer.dispatcher import Dispatcher, RunState, connect
from agent_layer.errors import BadInputError
from agent_layer.infra import format_count
from agent_layer.settings import Settings

_COLUMNS = (
    Column("run", 0),
    Column("state", 0, is_state=True),
    Column("queued", 1, is_number=True),
    Column("retrying", 6, is_number=True),
    Column("paused", 5, is_number=True),
    Column("with workers", 1, is_number=True),
    Column("accepted", 2, is_number=True),
    Column("a minute", 2, is_number=True),
    Column("failing", 3, is_number=True),
    Column("dead", 4, is_number=True),
    Column("lapsed", 7, is_number=True),
    Column("surplus", 8, is_number=True),
    Column("no reward", 9, is_number=True),
    Column("weight", 4, is_number=True),
)
_MARKED_BIAS = 1.2
"""Surplus that ran this many times as long as the rollouts that count is reported as a bias."""


def runs(
    context: typer.Context, *, run: Run = None, limit: Limit = 32, watch: Watch = False, format_: Format = "table"
) -> None:
    """Show what of each run waits, runs, was accepted and failed; runs with work first.

    'a minute' is the rate of the last five minutes, in accepted rollouts; 'failing' the share of the newest attempts
    that failed; 'dead' the number of rollouts given up; 'lapsed' the number of leases whose workers fell silent.
    A weight that is not shown is 1.
    """
    if context.invoked_subcommand is None:
        with connect(context.obj) as dispatcher:
            link = partial(print_run_link, context.obj, run, "runs")
            present(partial(_see, dispatcher, context.obj, run, limit), format_, watch=watch, link=link)


def pause(
    context: typer.Context,
    run: Annotated[str, typer.Argument()],
    *,
    running: Annotated[
        bool, typer.Option("--running", help="Let attempts that run pause at their next step, where their agent can.")
    ] = False,
    why: Annotated[str, typer.Option(help="Reason, which 'agent-layer runs' shows.")] = "",
) -> None:
    """Hand out no rollout of a run until it is resumed. Attempts that run continue without --running.

    agent-layer runs pause nightly --why "the reward is wrong"
    """
    with connect(context.obj) as dispatcher:
        state = find_run(dispatcher, run)
        dispatcher.pause(run, running=running, why=why)
        going = "pause at their next step, where their agents can" if running else "go on"
        typer.echo(f"run {run} is paused; {state.num_leased:,} rollouts that workers have {going}")
    print_link(context.obj, "run", run)


def resume(context: typer.Context, run: Annotated[str, typer.Argument()]) -> None:
    """Hand out rollouts of a run again, and reset its failure rate."""
    with connect(context.obj) as dispatcher:
        state = find_run(dispatcher, run)
        dispatcher.resume(run)
        typer.echo(f"run {run} goes on" if state.paused is not None else f"run {run} was not paused; it goes on")
    print_link(context.obj, "run", run)


def share(
    context: typer.Context,
    run: Annotated[str, typer.Argument()],
    *,
    weight: Annotated[float | None, typer.Option(help="Rollouts go out in proportion to this; 1 at first.")] = None,
    quota: Annotated[int | None, typer.Option(help="Most rollouts with workers at once; 0: no limit.")] = None,
) -> None:
    """Change a run's share beside others of the same priority.

    agent-layer runs share nightly --weight 2 --quota 64
    """
    if weight is None and quota is None:
        raise BadInputError("runs share: expected --weight or --quota, found neither; say what is to change")
    with connect(context.obj) as dispatcher:
        find_run(dispatcher, run)
        dispatcher.share(run, weight=weight, quota=quota)
        state = find_run(dispatcher, run)
        limit = "no quota" if state.quota is None else f"quota {state.quota:,}"
        typer.echo(f"run {run} has weight {state.weight:g} and {limit}")
    print_link(context.obj, "run", run)


def _see(dispatcher: Dispatcher, settings: Settings, run: str | None, limit: int) -> TableView:
    states = (
        [find_run(dispatcher, run)] if run else sorted(dispatcher.runs(), key=lambda one: (not _num_left(one), one.run))
    )
    found, has_more = limit_rows(states, limit)
    minutely = sum(_minutely(state) for state in states)
    num_paused = sum(state.paused is not None for state in states)
    paused = f", {num_paused:,} of them paused" if num_paused else ""
    summary = f"{format_count(len(states), 'run')}{paused}; {minutely:,.3g} rollouts accepted a minute"
    notes = [note for state in found for note in _describe(state, settings)]
    left_out = [f"{format_count(len(states) - limit, 'more run')} not shown; --limit shows more"] if has_more else []
    return TableView(
        summary=[summary],
        columns=_COLUMNS,
        cells=[_cells(state) for state in found],
        rows=[make_row(state) for state in found],
        key=("run",),
        notes=[*left_out, *notes],
        empty="none yet: 'agent-layer submit TASKS.jsonl --run NAME' begins one",
    )


def _num_left(state: RunState) -> int:
    """Number of rollouts that have yet to end."""
    return state.num_queued + state.num_delayed + state.num_paused + state.num_leased


def _minutely(state: RunState) -> float:
    return state.accepted_lately / state.lately_seconds * 60


def _cells(state: RunState) -> dict[str, str]:
    cells = {
        "run": state.run,
        "state": "paused" if state.paused is not None else "goes" if _num_left(state) else "done",
        "queued": f"{state.num_queued:,}",
        "with workers": f"{state.num_leased:,}" + (f" of {state.quota:,}" if state.quota is not None else ""),
        "accepted": f"{state.num_accepted:,}",
        "a minute": f"{_minutely(state):,.3g}",
    }
    if state.weight != 1:
        cells["weight"] = f"{state.weight:g}"
    if state.failure_rate is not None:
        cells["failing"] = f"{state.failure_rate:.0%}"
    counts = {
        "retrying": state.num_delayed,
        "paused": state.num_paused,
        "dead": state.num_dead,
        "lapsed": state.num_lapsed,
        "surplus": state.num_surplus,
        "no reward": state.num_unusable,
    }
    return cells | {name: f"{num:,}" for name, num in counts.items() if num}


def _describe(state: RunState, settings: Settings) -> Iterator[str]:
    """Yield what the table has no room for."""
    if state.paused is not None:
        yield f"run {state.run} is paused: {describe_why(state.paused)}"
        yield f"run {state.run}: 'agent-layer runs resume {state.run}' lets it go on"
    if state.causes and (_num_left(state) or state.paused is not None):
        causes = ", ".join(f"{num:,} {cause}" for cause, num in sorted(state.causes, key=lambda one: -one[1]))
        yield f"run {state.run}: failed attempts by cause: {causes}{_against_threshold(state, settings)}"
    if state.kept_seconds is not None and state.surplus_seconds is not None:
        yield f"run {state.run}: {_describe_bias(state.kept_seconds, state.surplus_seconds)}"


def _against_threshold(state: RunState, settings: Settings) -> str:
    if state.failure_rate is None:
        return ""
    most = f"above {settings.stop_failure_rate:.0%} of {settings.stop_failure_window} the run is paused"
    return f"; {state.failure_rate:.0%} of the newest {state.num_judged} failed, {most}"


def _describe_bias(kept: float, surplus: float) -> str:
    """Describe how far keeping the rollouts that end first biases training."""
    took = f"rollouts that count took {describe_seconds(kept)}, surplus was cut off after {describe_seconds(surplus)}"
    if surplus < _MARKED_BIAS * kept:
        return f"{took}: no sign that long ones are left out"
    return (
        f"{took}, {surplus / max(kept, 0.001):.1f} times as long: what is trained on is biased towards what ends early"
    )
