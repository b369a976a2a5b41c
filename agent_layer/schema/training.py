"""This file holds training samples: one row of token ids, with the mask of what the policy itself said.

This file holds trained batches: what one update of the policy learned from, so that it can be rebuilt for ever.

This file holds policy versions: which weights answered.
"""

import msgspec

from agent_layer.schema.record import Logprobs, Record, TokenIds, current_version


class StepRef(Record, frozen=True, kw_only=True):
    """Which step gave which tokens of a sample."""

    call_id: str
    choice: int
    start: int
    """Position of the step's first sampled token in ``response_ids``."""
    num_tokens: int


class TrainingSample(Record, frozen=True, kw_only=True, tag="training_sample"):
    """One path from a root step to a leaf, as a trainer wants it. Derived; never stored as truth.

    Example: prompt ``[1 2]``, answer ``[3 4]``, tool says ``[5]``, answer ``[6]`` give prompt_ids ``[1 2]``,
    response_ids ``[3 4 5 6]``, loss_mask ``[1 1 0 1]``.
    """

    sample_id: str
    trajectory_id: str
    run: str
    task_id: str
    prompt_ids: TokenIds
    """[num_prompt_tokens], the root step's prompt; never empty."""
    response_ids: TokenIds
    """[num_response_tokens], sampled tokens and what the environment said between them."""
    loss_mask: TokenIds
    """[num_response_tokens], 1 where the token was sampled by the policy and is trained in this very sample."""
    logprobs: Logprobs
    """[num_response_tokens], of the engine at sampling; 0.0 where loss_mask is 0."""
    versions: TokenIds
    """[num_response_tokens], policy version that sampled the token; -1 where loss_mask is 0."""
    schema_version: int = msgspec.field(default_factory=current_version)
    group_id: str | None = None
    task_type: str = "default"
    agent: str | None = None
    reward: float | None = None
    """Reward of the rollout; None leaves the group's baseline and is never trained."""
    temperature: float | None = None
    steps: list[StepRef] = []
    """Steps trained in this sample, in order."""


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


class PolicyVersion(Record, frozen=True, kw_only=True, tag="policy_version"):
    """One set of weights that engines may serve. Number 0 is registered before the first call of a run."""

    run: str
    number: int
    location: str
    """Directory or model name that an engine can load."""
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    weights_hash: str | None = None
    training_step: int | None = None
    """Updates that led to it; None for weights that this run did not train."""
