"""This file holds the opening of rollouts: what may be asked, and what is answered."""

import time

import msgspec

from agent_layer.gateway.rollouts import LiveRollout, new_key
from agent_layer.schema.ids import check_name, new_id, trajectory_id_of
from agent_layer.schema.record import JsonObject
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.task import Limits, RewardSpec, Split

__all__ = ["OpenRequest", "OpenedRollout", "RewardRequest", "rollout_of"]


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /rollouts. None: the gateway chooses."""

    task_id: str
    task_type: str = "default"
    run: str | None = None
    split: Split | None = None
    rollout_id: str | None = None
    attempt: int | None = None
    group_id: str | None = None
    agent: str | None = None
    labels: dict[str, str] = {}
    limits: Limits | None = None
    sampling: JsonObject = {}
    """Overrides what the agent asks of the engine."""
    rewards: dict[str, RewardSpec] = {}
    owner: str | None = None
    """'worker' when the opener records beginning and end itself."""


class OpenedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the attempt's agent finds its model, and the key that only this attempt has."""

    rollout_id: str
    attempt: int
    trajectory_id: str
    base_url: str
    api_key: str
    model: str


class RewardRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /r/{trajectory}/reward."""

    score: float | None = None
    reward: float | None = None
    """Another word for score."""
    name: str = "reward"
    step: int | None = None


def rollout_of(request: OpenRequest, run: str) -> LiveRollout:
    """Make what is asked for.

    Args:
        request: what the opener said.
        run: run of rollouts that name none.

    Raises: BadInputError: a name cannot stand in addresses.
    """
    rollout_id = check_name(request.rollout_id or new_id(), "rollout")
    attempt = request.attempt or 0
    started = AttemptStarted(
        trajectory_id=trajectory_id_of(rollout_id, attempt),
        rollout_id=rollout_id,
        attempt=attempt,
        run=check_name(request.run or run, "run"),
        task_id=request.task_id,
        started_at=time.time(),
        task_type=request.task_type,
        split=request.split or "train",
        group_id=request.group_id,
        agent=request.agent,
        rewards=request.rewards,
        labels=request.labels,
    )
    return LiveRollout(
        started=started,
        api_key=new_key(),
        limits=request.limits or Limits(),
        sampling=request.sampling,
        is_ours=request.owner != "worker",
    )
