"""Why rollouts of a step teach nothing: each accepted rollout is trained, or has a reason."""

import time
from collections.abc import Collection, Iterator, Sequence

import msgspec

from agent_layer.schema import ExcludedRollout
from trainer_adapter.data.advantages import TrainingBatch
from trainer_adapter.data.credit import RolloutSamples
from trainer_adapter.data.groups import GroupIntake

_REASONS = {
    "stale": "a rollout of its group is older than rollouts.max_staleness allows, so the whole group is redone",
    "no_reward": "it has no reward: it failed for a cause other than the policy, or was not judged",
    "overlong": "it was too long, and rollouts.overlong takes such rollouts out of training",
    "lone_reward": "no other rollout of its group has a reward, so there is nothing to compare it with",
    "equal_rewards": "all values of its group are equal, so none is better than another",
    "no_tokens": "it has no sampled token that can be trained; its reward counts in the baseline",
}


def find_exclusions(groups: Sequence[GroupIntake], batch: TrainingBatch, run: str, step: int) -> list[ExcludedRollout]:
    """Return the accepted rollouts none of whose tokens the batch trains, with the reason of each.

    Args:
        groups: of the step, those included that are redone or replaced.
        batch: of the step.
        run: of the trainer.
        step: number of the update; the first is 1.
    """
    at = time.time()
    trained = {batch.trajectory_ids[position] for position in batch.rollout_of}
    counted = set(batch.trajectory_ids)
    found = [one for group in groups for one in _of_group(group, trained, counted)]
    return [msgspec.structs.replace(one, run=run, step=step, at=at) for one in found]


def _of_group(group: GroupIntake, trained: Collection[str], counted: Collection[str]) -> Iterator[ExcludedRollout]:
    yield from group.excluded
    explained = {one.trajectory_id for one in group.excluded}
    rollouts = {one.trajectory_id: one for one in group.samples.rollouts}
    for trajectory_id in group.group.trajectory_ids:
        if trajectory_id not in trained and trajectory_id not in explained:
            kind = _kind(group, rollouts.get(trajectory_id), is_counted=trajectory_id in counted)
            reason = f"trajectory {trajectory_id}: {_REASONS[kind]}"
            yield ExcludedRollout(trajectory_id=trajectory_id, kind=kind, reason=reason)


def _kind(group: GroupIntake, rollout: RolloutSamples | None, *, is_counted: bool) -> str:
    if group.is_stale or rollout is None:
        return "stale"
    if rollout.trajectory_id in group.overlong and not rollout.samples:
        return "overlong"
    if rollout.reward is None:
        return "no_reward"
    if group.is_void:
        return "lone_reward"
    return "no_tokens" if is_counted else "equal_rewards"
