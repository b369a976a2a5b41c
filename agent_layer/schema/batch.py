"""This file holds trained batches: what one update of the policy learned from, so that it can be rebuilt for ever."""

import msgspec

from agent_layer.schema.record import Record, current_version

__all__ = ["TrainedBatch", "TrainedRollout"]


class TrainedRollout(Record, frozen=True, kw_only=True):
    """One rollout as an update saw it. Judgements that came later are not in it."""

    trajectory_id: str
    group_id: str
    reward: float
    """Reward of the rollout, as it entered the baseline of its group."""
    reward_ids: list[str]
    """Judgements that stood then, from which the reward follows."""
    samples_hash: str
    """Content hash of its encoded samples."""


class TrainedBatch(Record, frozen=True, kw_only=True, tag="trained_batch"):
    """What one update learns from, recorded before it does. Of two records of one step the later one stands.

    A step has two when its trainer was killed before a checkpoint: the weights that learned from the first are gone.
    """

    run: str
    batch_id: str
    step: int
    """Updates so far, this one included; the first is 1."""
    policy_version: int
    """Version of the weights that learn from it."""
    trained_at: float
    """Seconds since the epoch, UTC."""
    rollouts: list[TrainedRollout]
    """In the order of the batch, without those that were deleted since; those without samples count in the baseline
    of their group."""
    num_deleted: int = 0
    """Rollouts that it learned from and that were deleted since: nothing here names them."""
    num_samples: int
    """Of all rollouts, deleted ones included."""
    batch_hash: str
    """Content hash of the encoded batch, deleted rollouts included."""
    schema_version: int = msgspec.field(default_factory=current_version)
