"""This file holds what a step takes in: whole groups as samples, their age, and what was counted on the way. Pure."""

from collections.abc import Sequence

import msgspec

from agent_layer.schema.trajectory import Trajectory
from agent_layer.store.follow import GroupDelivery
from trainer_adapter.advantages import GroupSamples, RolloutSamples, teaches
from trainer_adapter.samples import samples_of

__all__ = ["GroupIntake", "StepCounts", "count_step", "read_group"]


class GroupIntake(msgspec.Struct, frozen=True, kw_only=True):
    """One delivered group, read."""

    delivery: GroupDelivery
    samples: GroupSamples
    num_dropped_steps: int
    versions: list[int]
    """[num_trained_tokens] policy version of each token that would be trained."""

    def staleness(self, policy_version: int) -> int:
        """Age in versions of its oldest token; 0 without tokens."""
        return policy_version - min(self.versions, default=policy_version)


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says of the groups of one step."""

    num_rollouts: int
    num_null_rewards: int
    num_dead_groups: int
    num_dropped_steps: int
    num_calls: int
    num_tokens: int
    reward_mean: float | None
    staleness_mean: float
    staleness_max: int


def read_group(delivery: GroupDelivery) -> GroupIntake:
    """Turn the trajectories of a group into samples.

    Raises: CaptureError: a step that should be trained lacks ids, log-probabilities or versions.
    """
    sets = [samples_of(trajectory) for trajectory in delivery.trajectories]
    rollouts = [
        RolloutSamples(trajectory_id=trajectory.trajectory_id, reward=trajectory.reward, samples=found.samples)
        for trajectory, found in zip(delivery.trajectories, sets, strict=True)
    ]
    group = delivery.group
    return GroupIntake(
        delivery=delivery,
        samples=GroupSamples(group_id=group.group_id, task_id=group.task_id, rollouts=rollouts),
        num_dropped_steps=sum(len(found.drops) for found in sets),
        versions=[version for found in sets for sample in found.samples for version in sample.versions if version >= 0],
    )


def count_step(groups: Sequence[GroupIntake], policy_version: int) -> StepCounts:
    """Count what one step takes in.

    Args:
        groups: those that are trained or dead, not the stale ones.
        policy_version: of the weights that are about to be updated.
    """
    trajectories = [trajectory for group in groups for trajectory in group.delivery.trajectories]
    rewards = [reward for trajectory in trajectories if (reward := trajectory.reward) is not None]
    ages = [policy_version - version for group in groups for version in group.versions]
    num_rollouts = sum(group.delivery.group.group_size for group in groups)
    return StepCounts(
        num_rollouts=num_rollouts,
        num_null_rewards=num_rollouts - len(rewards),
        num_dead_groups=sum(not teaches(_rewards(group.delivery.trajectories)) for group in groups),
        num_dropped_steps=sum(group.num_dropped_steps for group in groups),
        num_calls=sum(len(trajectory.steps) for trajectory in trajectories),
        num_tokens=len(ages),
        reward_mean=sum(rewards) / len(rewards) if rewards else None,
        staleness_mean=sum(ages) / len(ages) if ages else 0.0,
        staleness_max=max(ages, default=0),
    )


def _rewards(trajectories: Sequence[Trajectory]) -> list[float | None]:
    return [trajectory.reward for trajectory in trajectories]
