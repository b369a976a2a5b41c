"""This file holds tasks: what an agent is asked, how it is graded, and what it may use up."""

from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import JsonObject, Record, current_version

Split: TypeAlias = Literal["train", "eval"]

Partial: TypeAlias = Literal["deliver", "refill", "drop"]
"""What becomes of a group in which too few rollouts are usable: it is delivered as it is; it is filled up with new
rollouts, three times at most, and then delivered; or nothing of it is delivered."""


NOT_SAMPLING: Final = frozenset(
    {"messages", "tools", "model", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "user"}
    | {"metadata", "store"}
)
"""What the agent or the gateway decides of a request; all other fields shape an answer, and a task may set them."""


class RewardSpec(Record, frozen=True, kw_only=True):
    """How one named reward of scope rollout enters the rollout's reward."""

    weight: float = 1.0
    required: bool = True
    """A required reward that is absent or not ok makes the rollout's reward null."""


class Limits(Record, frozen=True, kw_only=True):
    """What one attempt may use up; None is no limit."""

    wall_seconds: float | None = None
    turns: int | None = None
    """Model calls."""
    tokens: int | None = None
    """Sampled tokens, summed over all calls."""
    idle_seconds: float | None = None
    """Longest time without a recorded event."""
    score_seconds: float | None = None
    """Longest time of its scorer; None: the setting of this name."""
    sandbox_seconds: float | None = None
    """How long its sandbox lives. Agent and scorer together have to be done before, which is checked when it is
    submitted."""


class TaskView(Record, frozen=True, kw_only=True):
    """The part of a task that its agent sees. Never the grading."""

    id: str
    task_type: str
    input: object = None
    seed: int | None = None


class Task(Record, frozen=True, kw_only=True, tag="task"):
    """One thing to be done by rollouts, as a user submits it."""

    id: str
    run: str
    schema_version: int = msgspec.field(default_factory=current_version)
    split: Split = "train"
    task_type: str = "default"
    input: object = None
    """What the agent sees; any JSON value."""
    grading: object = None
    """What only the scorer sees; any JSON value."""
    env: str | None = None
    agent: str | None = None
    scorer: str | None = None
    """'agent' (its own report counts), 'module:function' or a registered name; None: the worker's default."""
    rewards: dict[str, RewardSpec] = {}
    """Declared rewards by name. Empty: every reward of scope rollout counts with weight 1."""
    group_size: int = 1
    """Usable rollouts that make its group whole."""
    launch: int | None = None
    """Rollouts that are launched; those too slow to be among the usable are cancelled. None: ``group_size``."""
    partial: Partial = "deliver"
    sampling: JsonObject = {}
    """Overrides what the agent asks of the engine, such as temperature."""
    limits: Limits = Limits()
    priority: int = 0
    """Higher goes first."""
    needs: list[str] = []
    """Capabilities that a worker must have."""
    from_policy: int | None = None
    """Given out once the run's newest policy version is at least this, so that it is not too stale when it is trained;
    None: at once. What a trainer says that engines serve counts, else what is registered. Of one run and priority, what
    may begin by an older version goes first: it is trained first."""
    expected_seconds: float | None = None
    """How long an attempt takes: of what may begin by the same version, long ones begin first. None: as long as it took
    before."""
    seed: int | None = None
    labels: dict[str, str] = {}

    def view(self) -> TaskView:
        """What may be handed to the agent."""
        return TaskView(id=self.id, task_type=self.task_type, input=self.input, seed=self.seed)


def hash_input(task: Task) -> str:
    """Name what the task asks: its type, environment, input and seed. The order of fields does not matter.

    Its id, its grading and how it is tried do not count.
    """
    asked = {"task_type": task.task_type, "env": task.env, "input": task.input, "seed": task.seed}
    return content_hash(msgspec.json.encode(asked, order="deterministic"))
