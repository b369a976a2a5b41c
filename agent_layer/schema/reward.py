"""This file holds rewards and the one rule by which named rewards become the reward of a rollout."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import Record, current_version
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import RewardSpec

__all__ = ["Reward", "RewardScope", "RewardSource", "RewardStatus", "current_rewards", "rollout_reward"]

RewardScope: TypeAlias = Literal["rollout", "step", "agent"]
RewardSource: TypeAlias = Literal["rule", "verifier", "judge", "human", "env", "agent"]
RewardStatus: TypeAlias = Literal["ok", "missing", "verifier_error", "infra_error", "timeout"]


class Reward(Record, frozen=True, kw_only=True, tag="reward"):
    """One judgement. Append-only: a later judgement supersedes, and the history stays."""

    trajectory_id: str
    reward_id: str
    run: str
    at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    name: str = "reward"
    score: float | None = None
    """None when there is no judgement; ``status`` says why."""
    scope: RewardScope = "rollout"
    step: int | None = None
    """Index of the step that is judged, for scope step."""
    agent: str | None = None
    """Name of the agent that is judged, for scope agent."""
    source: RewardSource = "agent"
    status: RewardStatus = "ok"
    verifier_hash: str | None = None
    error: str | None = None
    supersedes: str | None = None
    """Reward id of the judgement that this one replaces."""


def current_rewards(rewards: Sequence[Reward]) -> list[Reward]:
    """Keep what stands: not superseded, and the newest of each (scope, name, step, agent), in order of time."""
    replaced = {reward.supersedes for reward in rewards if reward.supersedes is not None}
    standing: dict[tuple[str, str, int | None, str | None], Reward] = {}
    for reward in sorted(rewards, key=lambda reward: (reward.at, reward.reward_id)):
        if reward.reward_id not in replaced:
            standing[reward.scope, reward.name, reward.step, reward.agent] = reward
    return list(standing.values())


def rollout_reward(
    declared: Mapping[str, RewardSpec], rewards: Sequence[Reward], outcome: Outcome | None
) -> float | None:
    """Sum the declared rewards of scope rollout.

    Args:
        declared: the task's rewards by name; empty: each reward of scope rollout counts with weight 1.
        rewards: all judgements of one trajectory, in any order.
        outcome: how the attempt ended; None while it runs.

    Returns:
        None when a required reward is absent, not ok or not a finite number, when there is none at all, or when the
        attempt failed for a cause other than the policy. Never NaN or infinite.
    """
    if outcome is not None and outcome.cause not in (None, "policy"):
        return None
    standing = {reward.name: reward for reward in current_rewards(rewards) if reward.scope == "rollout"}
    specs = declared or {name: RewardSpec() for name in standing}
    total, num_counted = 0.0, 0
    for name, spec in specs.items():
        reward = standing.get(name)
        score = reward.score if reward is not None and reward.status == "ok" else None
        if score is not None and math.isfinite(score):
            total += spec.weight * score
            num_counted += 1
        elif spec.required:
            return None
    return total if num_counted and math.isfinite(total) else None
