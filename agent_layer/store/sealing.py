"""This file holds the count that comes before acceptance: which calls of an attempt are stored, and whole."""

from typing import cast

import msgspec
from redis import Redis

from agent_layer.store.keys import Keys
from agent_layer.store.summary import ENDED, STARTED

__all__ = ["CallCount", "count_calls"]


class CallCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a gateway made for an attempt, as far as they are stored and indexed."""

    started: int
    """Calls whose start is there."""
    ended: int
    """Those of them whose end is there too."""


def count_calls(redis: Redis, keys: Keys, trajectory_id: str) -> CallCount:
    """Count what is stored; compare it with what the gateway counted when it closed the attempt."""
    stored = cast("list[bytes]", redis.hvals(keys.calls(trajectory_id)))
    told = [int(value.split()[0]) for value in stored]
    return CallCount(
        started=sum(one & STARTED == STARTED for one in told), ended=sum(one == STARTED | ENDED for one in told)
    )
