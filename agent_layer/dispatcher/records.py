"""This file holds what workers are told and say: leases, answers to heartbeats, and reports."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.ids import trajectory_id_of
from agent_layer.schema.rollout import Cause
from agent_layer.schema.task import Task

__all__ = ["Beat", "Beats", "Claim", "Holding", "Lease", "LeaseEnding", "Report", "needs_of"]

Beat: TypeAlias = Literal["go", "pause", "cancel", "lost"]
"""Answer to a heartbeat: go on; let the attempt pause at its next step boundary, if it can; the rollout was cancelled;
the lease is not held any more."""

LeaseEnding: TypeAlias = Literal["completed", "truncated", "pause", "retry", "release", "dead"]
"""How a lease ends. The first two accept the attempt. ``pause`` keeps it: it goes on from its checkpoint, under another
lease. ``retry`` counts as a failure, ``release`` does not, and ``dead`` is never tried again."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """One holding of one rollout by one worker: what every change names."""

    token: str
    """Carried by every change; no other holding ever has the same."""
    rollout_id: str
    attempt: int
    group_id: str
    checkpoint: str | None = None
    """From where the attempt goes on that another lease had begun; None: it begins."""

    @property
    def trajectory_id(self) -> str:
        """Name of what this attempt leaves behind."""
        return trajectory_id_of(self.rollout_id, self.attempt)


class Lease(Holding, frozen=True, kw_only=True):
    """A holding, and what is to be done under it."""

    task: Task
    queued_seconds: float
    """How long the rollout could have been claimed before it was."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the queue gave, and what to wait for before the next."""

    leases: list[Lease]
    unreadable: list[tuple[Holding, str]] = []
    """Holdings whose task is none that this version knows, and why."""
    is_due: bool = False
    """Nothing was leased, because leases lapsed or back-offs ended that are to be reaped before."""
    wake_id: str = "0-0"
    """Newest entry of the wake stream at the time of a look that gave nothing."""
    due_seconds: float | None = None
    """After such a look: until a back-off or a lease ends; None when there is neither."""


class Beats(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to one heartbeat."""

    is_draining: bool
    """The worker is to claim nothing more, and to end when what it runs has ended."""
    leases: list[Beat]
    """[num_leases] in the order in which they were named."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says at the end of a lease."""

    lease: Holding
    ending: LeaseEnding
    error: str = ""
    """What went wrong, its cause first, as in ``infra: the gateway is gone``."""
    cause: Cause | None = None
    """Whose fault a failure is; None: the infrastructure's. Of an accepted attempt ``verifier``: its scorer failed."""
    usable: bool = True
    """Of an accepted attempt: whether it has a reward, and so counts towards the size of its group."""


def needs_of(task: Task) -> list[str]:
    """Capabilities that a worker must have: those the task names, its agent and its environment. Sorted, no doubles."""
    implied = [f"{kind}:{name}" for kind, name in (("agent", task.agent), ("env", task.env)) if name is not None]
    return sorted({*task.needs, *implied})
