"""What the API answers about one trajectory, its tokens, and its group."""

from typing import Literal

from agent_layer.schema import JsonObject, PhaseTimes, Resumed, TrajectoryAlarm
from agent_layer.schema.sandbox import SandboxUsage
from agent_layer.store import TrajectoryRow
from agent_layer.view.answers.lists import Answer, ExclusionLine


class ObservationLine(Answer, frozen=True, kw_only=True):
    """One answer of a tool or environment."""

    observation_id: str
    name: str
    at: float
    call_id: str | None
    agent: str | None
    arguments: object
    output: object
    status: str | None
    duration_seconds: float | None
    truncated: bool


class StepLine(Answer, frozen=True, kw_only=True):
    """One decision of the model, without its tokens, and what the world answered."""

    index: int
    call_id: str
    choice: int
    agent: str | None
    agent_path: list[str]
    role: str
    node: str | None
    conversation: str | None
    parent: int | None
    """Index of the step whose tokens it continues, else of the one that led here."""
    started_at: float
    ended_at: float | None
    status: str | None
    error: str | None
    findings: list[str]
    break_cause: str | None
    """Why its prompt does not continue an earlier one although it should."""
    sources: list[str]
    capture_level: str
    model: str | None
    engine: str | None
    finish_reason: str | None
    sampling: JsonObject | None
    temperature: float | None
    message: JsonObject | None
    """The answer as it was sent to the agent, tool calls included."""
    new_messages: list[object]
    """Messages of its prompt that its parent neither had nor answered; what they refer to is filled in.

    Only content that is not stored stays ``{"$content": HASH}``."""
    num_messages: int | None
    num_prompt_tokens: int | None
    prefix_length: int | None
    num_response_tokens: int | None
    policy_versions: list[tuple[int, int]] | None
    """(version, number of consecutive tokens)."""
    logprob_mean: float | None
    reward: float | None
    observations: list[ObservationLine]


class StepAnswer(Answer, frozen=True, kw_only=True):
    """One step with its whole state."""

    step: StepLine
    messages: list[object] | None
    tools: object
    framework: object
    environment: object
    sampling_asked: JsonObject | None


class RewardLine(Answer, frozen=True, kw_only=True):
    """One judgement."""

    reward_id: str
    at: float
    name: str
    score: float | None
    scope: str
    step: int | None
    agent: str | None
    source: str
    status: str
    error: str | None
    comment: str | None
    supersedes: str | None
    judge: str | None
    """``shared``: the judged code could force it."""
    void: bool
    is_current: bool


class LabelLine(Answer, frozen=True, kw_only=True):
    """One label given later."""

    label_id: str
    at: float
    name: str
    value: str | None
    """None: withdrawn."""
    source: str
    comment: str | None
    is_current: bool


class OutcomeLine(Answer, frozen=True, kw_only=True):
    """How the attempt ended."""

    status: str
    cause: str | None
    error: str | None
    traceback: str | None
    """Where the agent raised the error, in its own code."""
    ended_at: float
    result: object
    num_calls: int | None
    times: PhaseTimes
    findings: list[str]
    details: JsonObject
    sandbox: SandboxUsage | None


class TrajectoryUpdate(Answer, frozen=True, kw_only=True):
    """What one update computed for the trajectory."""

    run: str
    step: int
    batch_id: str
    policy_version: int
    at: float
    num_tokens: int
    num_trained: int
    """Tokens in the loss."""
    advantage_mean: float | None
    """Over these."""


class Siblings(Answer, frozen=True, kw_only=True):
    """Where the trajectory stands in its group."""

    group_id: str | None
    position: int | None
    """Among the accepted ones, from 0; None: it is none of them, or the group is open."""
    trajectory_ids: list[str]


class TrajectoryAnswer(Answer, frozen=True, kw_only=True):
    """One attempt, without its tokens."""

    row: TrajectoryRow
    is_cooled: bool
    """Whether only the bucket has its run; it can be judged once ``store reindex`` restored that."""
    task: JsonObject | None
    """What was asked; ``grading`` is there for operators only."""
    reward: float | None
    steps: list[StepLine]
    observations: list[ObservationLine]
    """Those that no step led to."""
    rewards: list[RewardLine]
    given_labels: list[LabelLine]
    """All that were given later, superseded ones included, in order of time; the row has those that count."""
    outcome: OutcomeLine | None
    resumes: list[Resumed]
    alarms: list[TrajectoryAlarm]
    exclusions: list[ExclusionLine]
    updates: list[TrajectoryUpdate]
    siblings: Siblings
    num_given: int
    """Tokens that prompts added."""
    num_sampled: int


class TokenPart(Answer, frozen=True, kw_only=True):
    """The tokens that one step adds: given ones, then sampled ones."""

    step: int
    start: int
    """Position of its first token."""
    num_given: int
    num_sampled: int
    prefix_length: int
    """Tokens before that the prompt repeats, and which are not laid down again."""
    parent: int | None
    break_cause: str | None
    update: int | None
    """Update that last learned from the step."""


class TokensAnswer(Answer, frozen=True, kw_only=True):
    """Tokens of a range, in columns of one length; numbers are rounded to six decimals."""

    trajectory_id: str
    step: int | None
    """None: of the whole trajectory, where each step lays down what it adds."""
    begin: int
    end: int
    total: int
    has_vocabulary: bool
    parts: list[TokenPart]
    """All of them, whatever the range."""
    ids: list[int]
    texts: list[str | None]
    """None: the vocabulary is not stored, or the token is a part of a character."""
    part_bytes: dict[str, str]
    """Hexadecimal bytes of the tokens that are parts of characters, by position."""
    sampled: list[int]
    steps: list[int]
    """Step that sampled the token, or whose prompt showed it first."""
    logprobs: list[float | None]
    """Log-probabilities of the engine at sampling, in nats."""
    trained_logprobs: list[float | None]
    """Log-probabilities of the trainer before the update."""
    advantages: list[float | None]
    mask: list[int | None]
    """1: in the loss of the update."""
    versions: list[int | None]
    """Policy version that sampled it."""


class Member(Answer, frozen=True, kw_only=True):
    """One attempt of a group."""

    row: TrajectoryRow
    member: int
    kind: Literal["kept", "unusable", "surplus", "failed", "running"]
    """``kept``: accepted with a reward. ``unusable``: accepted without. ``surplus``: cancelled, others had ended."""
    reward: float | None
    advantage: float | None
    """Mean over the tokens in the loss of the last update that learned from it."""
    update: int | None
    run_seconds: float | None
    num_sampled: int | None
    first_divergence: int | None
    """Position in the layout of the whole trajectory at which it differs from the first member; None: the first."""
    damaged: str | None = None
    """Why its bytes cannot be read; then all that its row does not say is None."""


class GroupAnswer(Answer, frozen=True, kw_only=True):
    """The attempts at one round of a task side by side."""

    group_id: str
    run: str | None
    task_id: str | None
    task_type: str | None
    split: str | None
    is_closed: bool
    closed_at: float | None
    group_size: int | None
    num_launched: int | None
    num_usable: int | None
    num_surplus: int
    fill: str | None
    kept_seconds: float | None
    surplus_seconds: float | None
    reward_mean: float | None
    """Over the kept ones, as ``reward_std``, which is that of the population."""
    reward_std: float | None
    is_zero_std: bool
    members: list[Member]


class SnippetPiece(Answer, frozen=True, kw_only=True):
    """A part of a snippet."""

    text: str
    is_match: bool


class SearchLine(Answer, frozen=True, kw_only=True):
    """One text in which all words occur."""

    row: TrajectoryRow
    step: int | None
    """Step that said it, or whose prompt showed it first; None: the task, or not known."""
    where: Literal["task", "message", "answer", "observation"]
    snippet: list[SnippetPiece]


class SearchAnswer(Answer, frozen=True, kw_only=True):
    """Texts inside trajectories, the newest first; at most three of one trajectory."""

    items: list[SearchLine]
    cursor: str | None
    num_segments: int
    num_waiting: int
    """Segments that this answer does not know yet; ask again."""
    left_out: list[str]
    """One sentence for each thing that was not searched."""
