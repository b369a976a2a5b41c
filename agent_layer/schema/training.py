"""This file holds training samples: one row of token ids, with the mask of what the policy itself said."""

import msgspec

from agent_layer.schema.record import Logprobs, Record, TokenIds, current_version

__all__ = ["StepRef", "TrainingSample"]


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
