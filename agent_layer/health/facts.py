"""What is known of a run at one moment, without its trainer: its work, its engines, its last steps; and measures of it.

A measure returns None where it is not known, or where it would mean nothing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

import msgspec

_MIN_JUDGED = 16
"""Fewer attempts, or ended rollouts, have no share worth a look."""
_MIN_INTERVALS = 3
_LEAST_INTERVAL_SECONDS = 60.0


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run at one moment. The defaults are those of a run that is over."""

    now: float
    """Seconds since the epoch, UTC."""
    num_waiting: int = 0
    """Rollouts that wait for a worker, those in back-off included."""
    num_held: int = 0
    """Rollouts that workers hold."""
    num_accepted: int = 0
    num_accepted_lately: int = 0
    """Number accepted in the last minutes."""
    num_dead: int = 0
    is_paused: bool = False
    oldest_wait_seconds: float | None = None
    """Since the oldest group that is open was queued; None: there is none."""
    num_unserved: int = 0
    """Waiting rollouts whose needs no running worker offers."""
    num_judged: int = 0
    """Newest attempts over which ``failure_rate`` is taken."""
    failure_rate: float | None = None
    step_times: Sequence[float] = ()
    """When its last steps ended, oldest first, in seconds since the epoch."""
    unserved_needs: str | None = None
    """What most of ``num_unserved`` need, with spaces between."""
    engine_behind_seconds: float | None = None
    """Seconds since a newer version than that of the most backward engine is known; None: no engine serves it."""
    engine_behind: str | None = None
    """Address of that engine."""
    engine_held_seconds: float | None = None
    """Seconds that a switch of weights has held calls; None: no engine serves it."""
    engine_held: str | None = None
    """Address of the engine that is held for the longest time."""


MeasureNow: TypeAlias = Callable[[RunFacts], float | None]


def starved_seconds(facts: RunFacts) -> float | None:
    """Return for how long work waits while no worker holds or ended any; 0 where it runs."""
    if facts.is_paused or not facts.num_waiting:
        return None
    return 0.0 if facts.num_held or facts.num_accepted_lately else _waited_seconds(facts)


def unserved_seconds(facts: RunFacts) -> float | None:
    """Return for how long work waits that no worker can do; 0 where each has a worker."""
    if facts.is_paused or not facts.num_waiting:
        return None
    return _waited_seconds(facts) if facts.num_unserved else 0.0


def _waited_seconds(facts: RunFacts) -> float | None:
    """Return for how long the oldest group waits, since the last step at most: until then the run was served."""
    if facts.oldest_wait_seconds is None or not facts.step_times:
        return facts.oldest_wait_seconds
    return min(facts.oldest_wait_seconds, max(0.0, facts.now - facts.step_times[-1]))


def stalled_intervals(facts: RunFacts) -> float | None:
    """Return how many of its usual intervals have passed since the last step, where work of the run is left."""
    intervals = [later - earlier for earlier, later in pairwise(facts.step_times)]
    if facts.is_paused or not facts.num_waiting + facts.num_held or len(intervals) < _MIN_INTERVALS:
        return None
    return (facts.now - facts.step_times[-1]) / max(_LEAST_INTERVAL_SECONDS, median(intervals))


def share_of_failures(facts: RunFacts) -> float | None:
    """Return the share of the newest attempts that failed."""
    return facts.failure_rate if facts.num_judged >= _MIN_JUDGED else None


def share_of_lost_tasks(facts: RunFacts) -> float | None:
    """Return the share of ended rollouts that were given up."""
    ended = facts.num_dead + facts.num_accepted
    return facts.num_dead / ended if ended >= _MIN_JUDGED else None
