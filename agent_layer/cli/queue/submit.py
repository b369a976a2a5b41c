"""This file holds how ``submit --wait`` waits: it shows how far it is, and says why when it does not go on."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_layer.cli.dispatch_words import describe_lack
from agent_layer.dispatcher.client import Dispatcher
from agent_layer.dispatcher.states import GroupState, RunState
from agent_layer.errors import AgentFailedError

__all__ = ["wait_for"]

_REDRAW_SECONDS = 0.5
_EXIT_STOPPED = 130


def wait_for(dispatcher: Dispatcher, group_ids: Sequence[str], run: str) -> None:
    """Wait until the groups have closed, and say what became of them.

    Raises: AgentFailedError: some of them lack rollouts; or nothing goes on, because too much failed.
    """
    try:
        states = _watch(dispatcher, group_ids, run)
    except KeyboardInterrupt:
        num_left = sum(not group.is_closed for group in dispatcher.groups(group_ids))
        typer.echo(
            f"stopped waiting; {num_left:,} of {len(group_ids):,} tasks are still queued or run: 'agent-layer groups'"
            " shows them, and the same submit with --wait goes on waiting",
            err=True,
        )
        raise typer.Exit(_EXIT_STOPPED) from None
    _report(dispatcher, states, run)


def _watch(dispatcher: Dispatcher, group_ids: Sequence[str], run: str) -> list[GroupState]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    states: dict[str, GroupState] = {}
    said: list[str] = []
    begun = _state_of(dispatcher, run)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("rollouts ended", total=None)
        while is_open := [one for one in group_ids if one not in states or not states[one].is_closed]:
            states |= {group.group_id: group for group in dispatcher.wait(is_open, timeout=_REDRAW_SECONDS)}
            now = _state_of(dispatcher, run)
            num_all = sum(group.num_launched for group in states.values())
            num_left = sum(group.num_open for group in states.values())
            progress.update(bar, total=num_all, completed=num_all - num_left, description=_describe(begun, now))
            if not said and (said := [*describe_lack(dispatcher, now)]):
                progress.console.print(*said, sep="\n", highlight=False)
            if num_left and now.is_failing and not now.num_leased:  # a run that somebody paused is waited for
                raise _stopped(now, num_left)
            if all(group.is_closed for group in states.values()):
                break
    return [states[one] for one in group_ids if one in states]


def _state_of(dispatcher: Dispatcher, run: str) -> RunState:
    return dispatcher.runs([run])[0]


def _describe(begun: RunState, now: RunState) -> str:
    """How the run went since; others may have submitted to it, too."""
    failed = sum(num for _, num in now.causes) - sum(num for _, num in begun.causes)
    counts = {
        "surplus": now.num_surplus - begun.num_surplus,
        "failed attempts": failed,
        "dead": now.num_dead - begun.num_dead,
    }
    said = [f"{num} {name}" for name, num in counts.items() if num > 0]
    paused = ["the run is paused"] if now.paused is not None else []
    return ", ".join([*paused, f"{now.num_leased} running", *said])


def _stopped(state: RunState, num_left: int) -> AgentFailedError:
    return AgentFailedError(
        f"run {state.run}: expected it to go on, but it is paused: {state.paused}; {num_left:,} rollouts stay queued,"
        f" mend the cause, then 'agent-layer runs resume {state.run}' and wait again with the same submit"
    )


def _report(dispatcher: Dispatcher, states: Sequence[GroupState], run: str) -> None:
    num_launched, num_accepted = sum(group.num_launched for group in states), _num_accepted(states)
    fates = {
        "without a reward": num_accepted - sum(group.num_usable for group in states),
        "surplus": _count(dispatcher, "cancelled", [group for group in states if group.fill == "whole"]),
        "dead": _count(dispatcher, "dead", states),
        "cancelled": _count(dispatcher, "cancelled", [group for group in states if group.fill != "whole"]),
    }
    said = "".join(f", {num} {name}" for name, num in fates.items() if num)
    typer.echo(f"accepted {num_accepted} of {num_launched} rollouts{said}")
    if num_short := sum((group.num_accepted or 0) < group.group_size for group in states):
        raise AgentFailedError(
            f"run {run}: expected every group to get as many rollouts as it needs, but {num_short} of {len(states)} got"
            " fewer; 'agent-layer dead' shows errors, 'agent-layer groups --closed' the groups"
        )


def _num_accepted(states: Sequence[GroupState]) -> int:
    return sum(group.num_accepted or 0 for group in states)


def _count(dispatcher: Dispatcher, status: str, groups: Sequence[GroupState]) -> int:
    """Rollouts of these groups that have the status."""
    return sum(one.get(status, 0) for one in dispatcher.queue.views.tally(groups))
