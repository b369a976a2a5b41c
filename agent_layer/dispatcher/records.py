"""This file holds what the dispatcher says and is told: leases, reports, and the state of what it holds."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.ids import trajectory_id_of
from agent_layer.schema.rollout import RolloutStatus
from agent_layer.schema.task import Split, Task

__all__ = [
    "Beat",
    "Claim",
    "Ending",
    "GroupState",
    "Lease",
    "QueueStats",
    "Report",
    "RolloutState",
    "WorkerState",
    "needs_of",
]

Beat: TypeAlias = Literal["go", "cancel", "lost"]
"""Answer to a heartbeat: go on; the rollout was cancelled; the lease is not held any more."""

Ending: TypeAlias = Literal["completed", "truncated", "retry", "release", "dead"]
"""How a lease ends. The first two accept the attempt; ``retry`` counts as a failure, ``release`` does not, and
``dead`` is never tried again."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """One holding of one rollout by one worker."""

    token: str
    """Carried by every change; no other holding ever has the same."""
    rollout_id: str
    attempt: int
    group_id: str
    task: Task
    queued_seconds: float
    """How long the rollout could have been claimed before it was."""

    @property
    def trajectory_id(self) -> str:
        """Name of what this attempt leaves behind."""
        return trajectory_id_of(self.rollout_id, self.attempt)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the queue gave, and what to wait for before the next."""

    leases: list[Lease]
    wake_id: str
    """Newest entry of the wake stream at the time of the look."""
    due_seconds: float | None
    """Until a rollout has waited out its back-off; None when none waits."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says at the end of a lease."""

    lease: Lease
    ending: Ending
    error: str = ""
    """What went wrong, its cause first, as in ``infra: the gateway is gone``."""


class RolloutState(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout as the dispatcher sees it."""

    rollout_id: str
    group_id: str
    status: RolloutStatus
    since: float
    """Seconds since the epoch, UTC: when it was last queued, leased or ended."""
    num_attempts: int
    """Attempts begun."""
    num_failures: int
    """Attempts that count towards the greatest number."""
    worker: str | None = None
    """Its newest holder."""
    accepted: int | None = None
    """The attempt that counts; None while there is none."""
    errors: list[str] = []
    """What ended earlier attempts, oldest first."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """One group as the dispatcher sees it."""

    group_id: str
    run: str
    task_id: str
    task_type: str
    split: Split
    group_size: int
    num_open: int
    """Rollouts that have no final status yet."""
    is_closed: bool
    queued_at: float
    """Seconds since the epoch, UTC."""
    num_accepted: int | None = None
    """None until the group is closed."""
    closed_at: float | None = None


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as its heartbeats show it."""

    worker: str
    seen_at: float
    """Seconds since the epoch, UTC."""
    silent_seconds: float
    about: dict[str, str | int]
    """What the worker says of itself: target, slots, how many run."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much the dispatcher holds, over all runs."""

    num_queued: int
    num_delayed: int
    """Rollouts that wait out a back-off."""
    num_leased: int
    num_dead: int
    num_open_groups: int
    paused_runs: list[str]


def needs_of(task: Task) -> list[str]:
    """Capabilities that a worker must have: those the task names, its agent and its environment. Sorted, no doubles."""
    implied = [f"{kind}:{name}" for kind, name in (("agent", task.agent), ("env", task.env)) if name is not None]
    return sorted({*task.needs, *implied})
