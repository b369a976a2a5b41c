"""The choice of an engine for a call: a pure function of how busy each engine is.

A rollout keeps its engine, whose prefix cache holds its conversation, unless others are much less busy. Every other
call goes where the fewest calls run. An unhealthy engine is the last resort: its error says more than a wait.
"""

from collections.abc import Sequence

import msgspec

_FULL = 0.95
"""Above this part of its cache in use, an engine with a queue throws out prompts that it will need again."""
_SLACK, _FACTOR = 8, 2
"""A rollout leaves its engine for one that has this many calls fewer than half: less does not repay a cold cache."""


class Load(msgspec.Struct, kw_only=True, gc=False):
    """How busy one engine is."""

    url: str
    in_flight: int = 0
    """Calls from this gateway."""
    others: int = 0
    """Calls of others that it runs or queues, when it was asked last."""
    waiting: int = 0
    """Calls in its queue, when it was asked last."""
    cache_usage: float = 0.0
    """Part of its cache in use, 0 to 1, when it was asked last."""
    is_well: bool = True
    """It answered when it was called last."""
    limit: int | None = None
    """Calls from this gateway that it gets at a time; None: any number."""
    turn: int = 0
    """When it was last chosen for a rollout that had none; the longest ago goes first among equals."""

    @property
    def num_calls(self) -> int:
        """All calls that it has, as far as known."""
        return self.in_flight + self.others

    @property
    def has_room(self) -> bool:
        """It may get another call."""
        return self.limit is None or self.in_flight < self.limit

    @property
    def is_full(self) -> bool:
        """More calls would only wait, or push others out."""
        return self.waiting > 0 and self.cache_usage >= _FULL


def choose_engine(loads: Sequence[Load], kept: str | None) -> Load:
    """Choose where a call goes.

    Args:
        loads: at least one; the engines that may answer this call.
        kept: the engine that answered the rollout before; None: this is its first call.
    """
    own = None
    for load in loads:
        if load.url == kept:
            own = load
    if own and own.is_well and own.num_calls <= _SLACK and not own.is_full:
        return own  # whatever the others do: most calls end here
    best = min(loads, key=_burden)
    return best if own is None or _should_leave(own, best) else own


def _should_leave(own: Load, best: Load) -> bool:
    if own.is_well != best.is_well or own.is_full != best.is_full:
        return True  # the best is not worse: either it is well and ours is not, or it has room
    return own.num_calls > _FACTOR * best.num_calls + _SLACK


def _burden(load: Load) -> tuple[bool, bool, int, float, int]:
    return (not load.is_well, load.is_full, load.num_calls, load.cache_usage, load.turn)
