"""Rollouts, attempts and groups: how one attempt at a task begins, ends and is accepted, and which share a baseline."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import JsonObject, Record, current_version
from agent_layer.schema.sandbox import SandboxUsage
from agent_layer.schema.task import RewardSpec, Split, Task
from agent_layer.schema.trace import TraceContext

RolloutStatus: TypeAlias = Literal[
    "queued",
    "leased",
    "running",
    "scoring",
    "sealing",
    "completed",
    "truncated",
    "paused",
    "failed",
    "cancelled",
    "dead",
    "lost",
]
"""``lost`` applies to attempts only: the machine or gateway that held it is gone."""

Cause: TypeAlias = Literal["policy", "infra", "verifier", "user"]
"""Who caused the end. Only ``policy`` is trained."""

FINAL_STATUSES: frozenset[str] = frozenset({"completed", "truncated", "failed", "cancelled", "dead", "lost"})


class AttemptStarted(Record, frozen=True, kw_only=True, tag="attempt_started"):
    """First record of a trajectory: task, agent, worker and run."""

    trajectory_id: str
    rollout_id: str
    attempt: int
    run: str
    task_id: str
    started_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    task_type: str = "default"
    split: Split = "train"
    group_id: str | None = None
    agent: str | None = None
    worker: str | None = None
    rewards: dict[str, RewardSpec] = {}
    labels: dict[str, str] = {}
    task: Task | None = None
    """The whole task, where the opener knows it."""
    input_hash: str | None = None
    """Content hash of the task's input; tasks with the same input share it, whatever their ids."""
    env: str | None = None
    env_version: str | None = None
    """Version of the environment."""
    trace: TraceContext | None = None
    """Trace that the attempt belongs to; None: its opener named none."""


class Resumed(Record, frozen=True, kw_only=True, tag="resumed"):
    """Another holder resumed an attempt from a checkpoint. Calls after that checkpoint do not count."""

    trajectory_id: str
    run: str
    at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    worker: str | None = None
    """Worker that resumes it."""
    abandoned: list[str] = []
    """Ids of the calls after the checkpoint, those of earlier resumes included: never trained."""


class PhaseTimes(Record, frozen=True, kw_only=True):
    """Seconds spent in each phase of an attempt; None where the phase was not reached."""

    queued_seconds: float | None = None
    prepare_seconds: float | None = None
    run_seconds: float | None = None
    score_seconds: float | None = None
    seal_seconds: float | None = None


class Outcome(Record, frozen=True, kw_only=True, tag="outcome"):
    """How an attempt ended. One per trajectory; the first one counts."""

    trajectory_id: str
    run: str
    status: RolloutStatus
    ended_at: float
    schema_version: int = msgspec.field(default_factory=current_version)
    cause: Cause | None = None
    """None for a plain completion."""
    error: str | None = None
    traceback: str | None = None
    """Where the agent raised the error: frames of its own code, and the innermost one; None: it raised none."""
    result: object = None
    """What the agent returned; any JSON value."""
    num_calls: int | None = None
    """Model calls that the gateway counted when the attempt was sealed."""
    times: PhaseTimes = PhaseTimes()
    details: JsonObject = {}
    findings: list[str] = []
    """What was noticed of the attempt as a whole: ``no_policy_call``, and ``refused: CODE`` for each reason for which
    the gateway refused requests of the agent."""
    sandbox: SandboxUsage | None = None
    """What its sandboxes took; None: it had none."""
    artifacts: str | None = None
    """Content hash of the declared artifacts, a tar in base64 as a JSON string; None: none were taken."""


class Accepted(Record, frozen=True, kw_only=True, tag="accepted"):
    """This attempt, and no other, counts for its rollout. Written once the attempt is whole."""

    trajectory_id: str
    rollout_id: str
    run: str
    accepted_at: float
    schema_version: int = msgspec.field(default_factory=current_version)
    group_id: str | None = None


Fill: TypeAlias = Literal["whole", "short", "dropped"]
"""``whole``: as many usable rollouts as requested. ``short``: fewer. ``dropped``: fewer, and nothing is delivered."""


class Group(Record, frozen=True, kw_only=True, tag="group"):
    """The rollouts of one round of a task, once it is closed. Never changes."""

    group_id: str
    run: str
    task_id: str
    closed_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    task_type: str = "default"
    split: Split = "train"
    group_size: int = 1
    """Rollouts requested."""
    trajectory_ids: list[str] = []
    """[num_accepted] in member order; shorter than group_size when some rollouts failed."""
    fill: Fill | None = None
    """None: written by a version without this field."""
    num_launched: int | None = None
    num_usable: int | None = None
    """Accepted rollouts with a reward."""
    num_surplus: int = 0
    """Rollouts that were cancelled because enough others had ended."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts, from first lease to acceptance."""
    surplus_seconds: float | None = None
    """Mean running time of cancelled rollouts; their full time would be longer. None: there were none."""
