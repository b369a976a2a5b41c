"""Counts of stored calls: before an attempt is accepted, all of its calls must be stored and trainable."""

from typing import cast

import msgspec
from redis import Redis

from agent_layer.errors import CaptureError
from agent_layer.infra import Keys
from agent_layer.schema import ENDED, STARTED, ClosedRollout, Split


class CallCount(msgspec.Struct, frozen=True, kw_only=True):
    """Stored and indexed calls that a gateway made for an attempt."""

    started: int
    """Calls whose start is stored."""
    ended: int
    """Those whose end is stored, too."""


def check_trainable(closed: ClosedRollout, split: Split) -> None:
    """Refuse an attempt of the train split that has policy answers without tokens.

    Raises: CaptureError: it has some; another attempt would have them, too.
    """
    if split == "train" and closed.untokened:
        raise CaptureError(
            f"rollout {closed.trajectory_id}: training needs token ids and log-probabilities of every answer, but the"
            f" engine gave none, or others than it counted, for {len(closed.untokened)} of {closed.started} calls"
            f" (first {closed.untokened[0]}); serve the policy from an engine that returns token ids, look at the"
            " findings of that step, or open the rollout with split 'eval'"
        )


def explain_no_policy_call(closed: ClosedRollout, split: Split, *, calls_optional: bool) -> str | None:
    """Return why nothing can be learnt from a rollout that the policy had no part in; None: it had, or need not have.

    Args:
        closed: the gateway's count. Where it does not count the policy's answers, the rollout is taken as it is.
        split: only ``train`` needs the policy.
        calls_optional: see ``Task``.
    """
    if split != "train" or calls_optional or closed.policy_calls != 0:
        return None
    found, remedy = "no call", "let the agent use OPENAI_BASE_URL (rollout.base_url), or set calls_optional in the task"
    if closed.started:
        found = f"none of its {closed.started} calls"
        remedy = f"'agent-layer show {closed.trajectory_id}' has their errors, or the other models that answered"
    return (
        f"rollout {closed.trajectory_id}: the policy answered {found}, so its reward says nothing about the policy;"
        f" {remedy}"
    )


def count_calls(redis: Redis, keys: Keys, trajectory_id: str) -> CallCount:
    """Return how many calls are stored; the gateway's own count at the close is what to compare it with."""
    stored = cast("list[bytes]", redis.hvals(keys.calls(trajectory_id)))
    phases = [int(value.split()[0]) for value in stored]
    return CallCount(
        started=sum(one & STARTED == STARTED for one in phases), ended=sum(one == STARTED | ENDED for one in phases)
    )
