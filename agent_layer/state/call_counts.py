"""This file holds what is asked before acceptance: whether all calls are stored, and can be trained on."""

from typing import cast

import msgspec
from redis import Redis

from agent_layer.errors import CaptureError
from agent_layer.infra.redis import Keys
from agent_layer.schema import ENDED, STARTED, Split
from agent_layer.schema.wire import ClosedRollout


class CallCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a gateway made for an attempt, as far as they are stored and indexed."""

    started: int
    """Calls whose start is there."""
    ended: int
    """Those of them whose end is there too."""


def check_trainable(closed: ClosedRollout, split: Split) -> None:
    """Refuse an attempt that is to be trained on and holds answers of the policy without tokens.

    Raises: CaptureError: it does; the same would happen again.
    """
    if split == "train" and closed.untokened:
        raise CaptureError(
            f"rollout {closed.trajectory_id}: training needs token ids and log-probabilities of every answer, but the"
            f" engine gave none for {len(closed.untokened)} of {closed.started} calls (first {closed.untokened[0]});"
            " serve the policy from an engine that returns token ids, or open the rollout with split 'eval'"
        )


def count_calls(redis: Redis, keys: Keys, trajectory_id: str) -> CallCount:
    """Count what is stored; compare it with what the gateway counted when it closed the attempt."""
    stored = cast("list[bytes]", redis.hvals(keys.calls(trajectory_id)))
    told = [int(value.split()[0]) for value in stored]
    return CallCount(
        started=sum(one & STARTED == STARTED for one in told), ended=sum(one == STARTED | ENDED for one in told)
    )
