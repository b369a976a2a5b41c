"""Rebuilds the batch of an update from stored records, byte for byte, and compares what the update computed from it.

A batch follows from steps, which never change, and from the judgements that were current then, whose ids its record
contains; later judgements are ignored. Every difference is reported. When rollouts of a batch were deleted, each other
rollout is compared by its own hash.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from agent_layer.errors import AgentLayerError, CaptureError
from agent_layer.schema import (
    AdvantageRule,
    ExcludedRollout,
    LengthRule,
    TrainedBatch,
    TrainedRollout,
    TrainingSample,
    Trajectory,
    content_hash,
    encode,
    new_id,
)
from trainer_adapter.data.advantages import TrainingBatch, make_batch
from trainer_adapter.data.credit import RolloutSamples
from trainer_adapter.data.groups import WHOLE, make_rollout_samples
from trainer_adapter.data.lengths import fit_rows
from trainer_adapter.data.samples import samples_of
from trainer_adapter.data.update_record import compare_tokens


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A rebuilt batch."""

    record: TrainedBatch
    content: bytes
    """The encoded batch, without deleted rollouts."""
    differences: list[str]
    """One sentence for each part that differs from what was trained; empty when all remaining bytes are equal."""
    has_tokens: bool | None = None
    """Whether what the update computed is stored; None: its trainer did not keep that."""


def record_batch(
    batch: TrainingBatch,
    run: str,
    step: int,
    policy_version: int,
    lengths: LengthRule = WHOLE,
    advantages: AdvantageRule | None = None,
) -> TrainedBatch:
    """Return the record of the batch of an update.

    Args:
        batch: the batch.
        run: run of the policy.
        step: number of the update; the first is 1.
        policy_version: of the weights before it.
        lengths: by which rows were left out or cut.
        advantages: how they are computed; None: what the update computes is not kept.
    """
    samples: list[list[TrainingSample]] = [[] for _ in batch.rewards]
    for position, sample in zip(batch.rollout_of, batch.samples, strict=True):
        samples[position].append(sample)
    parts = zip(batch.trajectory_ids, batch.group_ids, batch.rewards, batch.reward_ids, samples, strict=True)
    return TrainedBatch(
        run=run,
        batch_id=new_id(),
        step=step,
        policy_version=policy_version,
        trained_at=time.time(),
        rollouts=[
            TrainedRollout(
                trajectory_id=trajectory_id,
                group_id=group_id,
                reward=reward,
                reward_ids=reward_ids,
                samples_hash=_hash_samples(found),
                num_tokens=_count_tokens(found),
            )
            for trajectory_id, group_id, reward, reward_ids, found in parts
        ],
        num_samples=len(batch.samples),
        num_tokens=_count_tokens(batch.samples),
        credit=batch.credit,
        lengths=lengths,
        advantages=advantages,
        batch_hash=content_hash(encode(msgspec.structs.replace(batch, teacher_logprobs=[]))),
    )


def rebuild_batch(record: TrainedBatch, read: Callable[[str], Trajectory]) -> Replay:
    """Rebuild the batch of an update.

    Args:
        record: record of the batch.
        read: returns a stored trajectory by its id; may raise AgentLayerError.
    """
    rollouts: list[tuple[str, RolloutSamples]] = []
    trajectories: dict[str, Trajectory] = {}
    differences: list[str] = []
    for trained in record.rollouts:
        try:
            trajectory = trajectories[trained.trajectory_id] = read(trained.trajectory_id)
            rollout = _rebuild(trained, trajectory, record)
        except AgentLayerError as error:  # lost, damaged, or no longer trainable
            differences.append(f"trajectory {trained.trajectory_id}: {error}")
            continue
        rollouts.append((trained.group_id, rollout))
        differences += _differences(trained, rollout)
    batch = make_batch(rollouts, record.credit)
    content = encode(batch)
    if not differences and not record.num_deleted and content_hash(content) != record.batch_hash:
        differences.append("the batch: its rollouts are what they were, but the record of their order is not")
    has_tokens = None
    if record.advantages is not None and not differences:  # nothing could be equal otherwise
        found = compare_tokens(record, batch, trajectories)
        has_tokens = found is not None
        differences += found or []
    where = f"step {record.step} of run {record.run}, "
    positions = [where + difference for difference in differences]
    return Replay(record=record, content=content, differences=positions, has_tokens=has_tokens)


def _rebuild(trained: TrainedRollout, trajectory: Trajectory, record: TrainedBatch) -> RolloutSamples:
    """Return the rollout with the judgements that were current then.

    Raises: AgentLayerError: it cannot be trained any more.
    """
    then = [reward for reward in trajectory.rewards if reward.reward_id in trained.reward_ids]
    trajectory = msgspec.structs.replace(trajectory, rewards=then)
    found = fit_rows(trajectory, samples_of(trajectory), record.lengths)
    if isinstance(found, ExcludedRollout):
        raise CaptureError(found.reason)
    return make_rollout_samples(trajectory, found, record.credit, record.lengths)


def _differences(trained: TrainedRollout, rebuilt: RolloutSamples) -> list[str]:
    subject = f"trajectory {trained.trajectory_id}"
    if lost := sorted(set(trained.reward_ids) - set(rebuilt.reward_ids)):
        return [f"{subject}: expected the judgements of then, but {', '.join(lost)} is not stored"]
    if rebuilt.reward != trained.reward:
        return [f"{subject}: expected the reward {trained.reward:g}, but its judgements of then give {rebuilt.reward}"]
    if (found := _hash_samples(rebuilt.samples)) != trained.samples_hash:
        return [f"{subject}: expected samples with the hash {trained.samples_hash}, found {found}"]
    return []


def _hash_samples(samples: Sequence[TrainingSample]) -> str:
    return content_hash(b"".join(map(encode, samples)))


def _count_tokens(samples: Sequence[TrainingSample]) -> int:
    return sum(step.num_tokens for sample in samples for step in sample.steps)
