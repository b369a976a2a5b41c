"""This file holds rollouts and attempts: how one try at a task begins, ends and is accepted."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import JsonObject, Record, current_version
from agent_layer.schema.task import RewardSpec, Split, Task
from agent_layer.schema.wire import TraceContext

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
"""``lost`` is said of attempts only: the machine or gateway that held it is gone."""

Cause: TypeAlias = Literal["policy", "infra", "verifier", "user"]
"""Who brought the end about. Only ``policy`` may teach the model anything."""

FINAL_STATUSES: frozenset[str] = frozenset({"completed", "truncated", "failed", "cancelled", "dead", "lost"})


class AttemptStarted(Record, frozen=True, kw_only=True, tag="attempt_started"):
    """The first record of a trajectory: who tries what, for whom."""

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
    """Content hash of the task's input; tasks with one input share it, whatever they are called."""
    env: str | None = None
    env_version: str | None = None
    """Which version of the environment answered."""
    trace: TraceContext | None = None
    """Trace that the attempt belongs to, where its opener said so."""


class Resumed(Record, frozen=True, kw_only=True, tag="resumed"):
    """Another holder went on with an attempt, from a checkpoint. What was done after that checkpoint does not count."""

    trajectory_id: str
    run: str
    at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    worker: str | None = None
    """Who goes on."""
    abandoned: list[str] = []
    """Ids of the calls that came after the checkpoint, those of earlier resumes included: never trained."""


class PhaseTimes(Record, frozen=True, kw_only=True):
    """Seconds spent in each phase of an attempt; None where the phase was not reached."""

    queued_seconds: float | None = None
    prepare_seconds: float | None = None
    run_seconds: float | None = None
    score_seconds: float | None = None
    seal_seconds: float | None = None


class Outcome(Record, frozen=True, kw_only=True, tag="outcome"):
    """How an attempt ended. One per trajectory; the first one written stands."""

    trajectory_id: str
    run: str
    status: RolloutStatus
    ended_at: float
    schema_version: int = msgspec.field(default_factory=current_version)
    cause: Cause | None = None
    """None for a plain completion."""
    error: str | None = None
    result: object = None
    """What the agent returned; any JSON value."""
    num_calls: int | None = None
    """Model calls that the gateway counted when the attempt was sealed."""
    times: PhaseTimes = PhaseTimes()
    details: JsonObject = {}


class Accepted(Record, frozen=True, kw_only=True, tag="accepted"):
    """This attempt, and no other, counts for its rollout. Written once the attempt is whole."""

    trajectory_id: str
    rollout_id: str
    run: str
    accepted_at: float
    schema_version: int = msgspec.field(default_factory=current_version)
    group_id: str | None = None
