"""Training records: samples with their loss mask, trained batches, policy versions."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import Advantages, JsonObject, Logprobs, Record, TokenIds, current_version


class StepRef(Record, frozen=True, kw_only=True):
    """Tokens of a sample that one step sampled."""

    call_id: str
    choice: int
    start: int
    """Position of the step's first sampled token in ``response_ids``."""
    num_tokens: int


class TrainingSample(Record, frozen=True, kw_only=True, tag="training_sample"):
    """One path from a root step to a leaf, in the form that a trainer needs. Derived; not stored.

    Example: prompt ``[1 2]``, answer ``[3 4]``, tool output ``[5]``, answer ``[6]`` give prompt_ids ``[1 2]``,
    response_ids ``[3 4 5 6]``, loss_mask ``[1 1 0 1]``.
    """

    sample_id: str
    trajectory_id: str
    run: str
    task_id: str
    prompt_ids: TokenIds
    """[num_prompt_tokens], the root step's prompt; never empty."""
    response_ids: TokenIds
    """[num_response_tokens], sampled tokens and the environment's tokens between them."""
    loss_mask: TokenIds
    """[num_response_tokens], 1 where the policy sampled the token and this sample trains it."""
    logprobs: Logprobs
    """[num_response_tokens], of the engine at sampling; 0.0 where loss_mask is 0."""
    versions: TokenIds
    """[num_response_tokens], policy version that sampled the token; -1 where loss_mask is 0."""
    schema_version: int = msgspec.field(default_factory=current_version)
    group_id: str | None = None
    task_type: str = "default"
    agent: str | None = None
    reward: float | None = None
    """Reward of the rollout; None: not in the baseline of its group, and not trained."""
    temperature: float | None = None
    steps: list[StepRef] = []
    """Steps trained in this sample, in order."""
    routed_experts: bytes | None = None
    """Bytes of a .npy file, int16, [num_prompt_tokens + num_response_tokens, num_layers, num_experts_per_token]: the
    experts of each token when it was first computed, zeros where it was not; None: an engine did not return them."""


class ExcludedRollout(Record, frozen=True, kw_only=True, tag="excluded_rollout"):
    """An accepted rollout none of whose tokens an update learns from, and why."""

    trajectory_id: str
    kind: str
    """Short name of the reason, such as ``greedy`` or ``unreproducible:top_p``; findings of steps use the same."""
    reason: str
    """One sentence: what was found in which step, and what to do."""
    run: str | None = None
    """Run of the trainer; None until it is recorded, as with ``step`` and ``at``."""
    step: int | None = None
    """Number of the update that it was left out of; the first is 1."""
    at: float | None = None
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)


Overlong: TypeAlias = Literal["score", "mask", "null"]
"""What a rollout that was too long counts as.

score  its reward counts, its tokens are trained
mask   its reward counts in the baseline of its group, its tokens are not trained
null   its reward is unknown
"""

LongRows: TypeAlias = Literal["exclude", "cut_end"]
"""What happens to a row that is too long: its rollout is left out, or its last tokens are cut off."""


class LengthRule(Record, frozen=True, kw_only=True):
    """How a trainer treats rollouts and rows that are too long."""

    overlong: Overlong = "score"
    max_row_tokens: int | None = None
    """Longest row, prompt included; None: no limit."""
    long_rows: LongRows = "exclude"


class DistillRule(Record, frozen=True, kw_only=True):
    """How a teacher's log-probabilities entered the advantages."""

    teacher: str
    """Name under which its server serves it."""
    coefficient: float
    replaces_rewards: bool = False
    """Whether nothing else did."""


class AdvantageRule(Record, frozen=True, kw_only=True):
    """What an update computed advantages by, beside rewards and credit."""

    estimator: str
    """``grpo``, ``rloo``, ``reinforce++``, or the name of a part of users."""
    options: JsonObject = {}
    """Keyword arguments of such a part."""
    credit_options: JsonObject = {}
    """Those of a credit of users."""
    code: dict[str, str] = {}
    """Version of each part of users that advantages follow from: ``advantage``, ``credit``."""
    scale_by_std: bool = False
    discount: float = 1.0
    overlong_tokens: int | None = None
    """``max_tokens`` of the overlong penalty; None: there was none."""
    overlong_buffer: int | None = None
    """``buffer_tokens`` of the overlong penalty."""
    can_reject: bool = False
    """Whether rollout correction may take tokens out of the loss."""
    distill: DistillRule | None = None
    """None: there was no teacher."""


class TrainedRollout(Record, frozen=True, kw_only=True):
    """One rollout at the time of an update, without later judgements."""

    trajectory_id: str
    group_id: str
    reward: float
    """Reward of the rollout, as it entered the baseline of its group."""
    reward_ids: list[str]
    """Judgements that were current then, from which the reward follows."""
    samples_hash: str
    """Content hash of its encoded samples."""
    num_tokens: int | None = None
    """Sampled tokens of it that the update had; None: recorded by an earlier version."""


class TrainedBatch(Record, frozen=True, kw_only=True, tag="trained_batch"):
    """Batch of one update, recorded before the update. Of two records of one step that of the higher version counts.

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
    """Rollouts in the order of the batch, without those deleted since. Rollouts without samples count in the baseline
    of their group."""
    num_deleted: int = 0
    """Rollouts of the batch that were deleted since; the record does not name them."""
    num_samples: int
    """Samples of all rollouts, deleted ones included."""
    num_tokens: int | None = None
    """Sampled tokens of all rollouts, deleted ones included; None: recorded by an earlier version."""
    credit: str = "rollout"
    """What shared one advantage: ``rollout``, ``turn``, ``agent``, or the name of a part of users. Rewards of steps or
    agents are part of the batch only where they counted."""
    lengths: LengthRule = LengthRule()
    """Limits by which rows were left out or cut."""
    advantages: AdvantageRule | None = None
    """None: the trainer did not keep what it computed, in ``TrainedTokens``."""
    batch_hash: str
    """Content hash of the encoded batch, deleted rollouts included."""
    schema_version: int = msgspec.field(default_factory=current_version)


class TrainedTokens(Record, frozen=True, kw_only=True, tag="trained_tokens"):
    """What one update computed for the sampled tokens of one rollout, in columns.

    It belongs to its trajectory, and goes with it.
    """

    trajectory_id: str
    run: str
    batch_id: str
    """Id of the ``TrainedBatch``."""
    step: int
    policy_version: int
    """Version of the weights under which ``logprobs`` were computed."""
    at: float
    """Seconds since the epoch, UTC."""
    calls: list[tuple[str, int, int]]
    """(call id, choice, number of its first tokens that are in the columns), in order of the columns."""
    logprobs: Logprobs
    """[num_tokens], of the trainer before the update."""
    advantages: Advantages
    """[num_tokens]."""
    mask: bytes
    """[num_tokens], 1 where the loss had the token in any optimizer step, 0 where rollout correction rejected it."""
    teacher_logprobs: Logprobs | None = None
    """[num_tokens], of the teacher; None: the update had none."""
    schema_version: int = msgspec.field(default_factory=current_version)


class Vocabulary(Record, frozen=True, kw_only=True, tag="vocabulary"):
    """Bytes of each token of one tokenizer."""

    tokenizer_hash: str
    """Hash of the tokenizer, as in ``Step.tokenizer_hash``."""
    sizes: TokenIds
    """[num_ids] number of bytes of each id; -1: no token has the id."""
    content: bytes
    """Bytes of all tokens, in order of their ids."""
    schema_version: int = msgspec.field(default_factory=current_version)


class CheckpointRef(Record, frozen=True, kw_only=True):
    """A checkpoint, by what stands behind it."""

    run: str
    step: int
    """Updates of the run, and of the runs that it branched from, that led to it."""


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
    """Hash of the file of weights, or of the tensors that veRL sends; None: not known, as on GPUs that veRL uses."""
    training_step: int | None = None
    """Updates that led to it; None for weights that this run did not train."""
    parent: CheckpointRef | None = None
    """Checkpoint of another run whose weights these are; None: there is none, or it is not known."""
