"""Phrases that all looks at the dispatcher share: how much there is, and what was left out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from agent_layer.cli.ui.output import describe_seconds
from agent_layer.dispatcher import Dispatcher, QueueStats, RolloutState, RunState
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.infra import format_count

T = TypeVar("T")

MAX_LOOKED_AT = 50_000
"""Most groups or rollouts that a look reads to find those of one run, so that watching costs Redis little."""
_MAX_REASON_LENGTH = 300
_TRACEBACK = re.compile(r"\n\W*(Exception Group )?Traceback \(most recent call last\):")
_MAX_LACKS = 3


def limit_rows(found: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """Return the first ``limit`` items, and whether there are more."""
    rest = iter(found)
    taken = list(islice(rest, limit))
    return taken, next(rest, None) is not None


def find_run(dispatcher: Dispatcher, run: str) -> RunState:
    """Find a run by its name.

    Raises: NotFoundError: no task was submitted to it.
    """
    found = dispatcher.runs([run])
    if not found:
        raise NotFoundError(
            f"run {run!r}: expected one that tasks were submitted to, found none; 'agent-layer runs' lists them"
        )
    return found[0]


def describe_depth(dispatcher: Dispatcher, stats: QueueStats, run: str | None) -> list[str]:
    """Describe how much of a run, or of all runs, waits and runs; and what is paused."""
    state = find_run(dispatcher, run) if run else None
    of = state or stats
    at_times = {"wait to be retried": of.num_delayed, "paused": of.num_paused}
    if state is None:  # num_dead of a run includes rollouts that were tried again since
        at_times["dead"] = stats.num_dead
    counts = [f"{of.num_queued:,} queued", f"{of.num_leased:,} with workers"]
    counts += [f"{num:,} {what}" for what, num in at_times.items() if num]
    groups = "" if state else f"; {format_count(stats.num_open_groups, 'open group')}"
    whose = f"run {run}" if run else "all runs"
    paused = [state.run] if state and state.paused is not None else stats.paused_runs if state is None else []
    return [
        f"{whose}: {', '.join(counts)}{groups}",
        *_describe_paused(dispatcher, paused),
        *describe_lack(dispatcher, of),
    ]


def describe_lack(dispatcher: Dispatcher, of: QueueStats | RunState) -> Iterator[str]:
    """Describe queued rollouts that no worker takes: none is up, or none that is up offers what they need."""
    if not of.num_queued:
        return
    lease_seconds = dispatcher.settings.lease_seconds
    up = [worker for worker in dispatcher.workers() if worker.silent_seconds <= lease_seconds]
    if not up:
        if not of.num_leased:
            yield "no worker is up: 'agent-layer work TARGET' starts one"
        return
    offers = [set(str(worker.about.get("offers", "")).split()) for worker in up]
    waiting = dispatcher.inspector.needs(of.run if isinstance(of, RunState) else "")
    lacking = {needs: num for needs, num in waiting.items() if not any(needs <= offered for offered in offers)}
    for needs, num in sorted(lacking.items(), key=itemgetter(1), reverse=True)[:_MAX_LACKS]:
        yield (
            f"{format_count(num, 'rollout')} in the queue: no worker that is up offers {' and '.join(sorted(needs))};"
            " 'agent-layer workers' shows what each offers"
        )


def _describe_paused(dispatcher: Dispatcher, runs: Sequence[str]) -> Iterator[str]:
    for state in dispatcher.runs(sorted(runs)[:3]) if runs else []:
        yield f"run {state.run} is paused: {describe_why(state.paused)}"
    if len(runs) > 3:
        yield f"{len(runs) - 3} more runs are paused; 'agent-layer runs' shows them"


def describe_why(why: str | None) -> str:
    """Return why a run is paused, cut before the details of a long error."""
    reason = shorten_error(why or "")
    return f"{reason[:_MAX_REASON_LENGTH]} …" if len(reason) > _MAX_REASON_LENGTH else reason or "no reason given"


def shorten_error(error: str) -> str:
    """Return what ended an attempt on one line, without the agent's traceback."""
    return " ".join(_TRACEBACK.split(error)[0].split())


def describe_none(run: str | None) -> str:
    """Return what to type when no group is open."""
    whose = f" --run {run}" if run else ""
    return (
        f"none is open: 'agent-layer submit TASKS.jsonl{whose}' queues tasks,"
        f" 'agent-layer groups --closed{whose}' shows what has ended"
    )


def describe_left_out(limit: int, run: str | None, num_all: int, *, has_more: bool) -> list[str]:
    """Describe what is not shown, or may not be."""
    if has_more:
        return [f"only the first {limit:,} are shown; --limit shows more"]
    if run and num_all > MAX_LOOKED_AT:
        return [f"those of run {run} were looked for among the first {MAX_LOOKED_AT:,} of {num_all:,} only"]
    return []


def describe_status(state: RolloutState) -> str:
    """Return the status of a rollout; during a back-off, how long it lasts."""
    if state.delay_seconds is not None:
        return f"retry in {describe_seconds(state.delay_seconds)}" if state.delay_seconds > 0 else "retry is due"
    return state.status


def describe_tries(state: RolloutState) -> str:
    """Return the number of attempts, and of those that failed."""
    if not state.num_failures:
        return f"{state.num_attempts}"
    of_all = f" of {state.num_attempts}" if state.num_failures < state.num_attempts else ""
    return f"{state.num_failures}{of_all} failed"


def choose(subject: str, names: Sequence[str] | None, others: dict[str, object]) -> None:
    """Check that the user selects what a command acts on in exactly one way.

    Raises: BadInputError: in no way, or in several.
    """
    *first, last = ["names", *others]
    options = f"{', '.join(first)} or {last}"
    given = [*(["names"] if names else []), *(option for option, value in others.items() if value)]
    if len(given) != 1:
        found = "none of these" if not given else " and ".join(given)
        raise BadInputError(f"{subject}: expected {options}, found {found}; say which are meant, in one way")
