"""Records of the queue: leases, heartbeats and reports of workers; the state of rollouts, groups, runs and workers."""

from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema import Cause, Fill, RolloutStatus, ShortGroupPolicy, Split, Task, make_trajectory_id

LeaseAnswer: TypeAlias = Literal["go", "pause", "cancel", "lost"]
"""Answer to a heartbeat: go on; let the attempt pause at its next step boundary, if it can; the rollout was cancelled;
the worker no longer holds the lease."""

LeaseEnding: TypeAlias = Literal["completed", "truncated", "pause", "retry", "release", "dead"]
"""How a lease ends. The first two accept the attempt. ``pause`` keeps it: it goes on from its checkpoint, under another
lease. ``retry`` counts as a failure, ``release`` does not, and ``dead`` is never tried again."""


class HeldRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as one worker holds it by one lease: what every change names."""

    token: str
    """Carried by every change; no other lease ever has the same."""
    rollout_id: str
    attempt: int
    group_id: str
    checkpoint: str | None = None
    """Where the attempt goes on that began under another lease; None: it begins now."""

    @property
    def trajectory_id(self) -> str:
        """Id of the trajectory that this attempt leaves behind."""
        return make_trajectory_id(self.rollout_id, self.attempt)


class Lease(HeldRollout, frozen=True, kw_only=True):
    """A holding, and the task to run under it."""

    task: Task
    queued_seconds: float
    """How long the rollout could have been claimed before it was."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the queue returned, and what to wait for before the next."""

    leases: list[Lease]
    unreadable: list[tuple[HeldRollout, str]] = []
    """Holdings whose task this version cannot read, and why."""
    is_due: bool = False
    """Nothing was leased: leases lapsed or back-offs ended, and must be reaped first."""
    lacking: list[str] = []
    """Needs of sandboxes that keep this worker from rollouts which wait."""
    due_seconds: float | None = None
    """After a look that found nothing: until a back-off or a lease ends; None when there is neither."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to one heartbeat."""

    is_draining: bool
    """The worker finishes what it runs, claims nothing more and exits."""
    leases: list[LeaseAnswer]
    """[num_leases] in the order of the heartbeat."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker reports at the end of a lease."""

    lease: HeldRollout
    ending: LeaseEnding
    error: str = ""
    """What went wrong, cause first, as in ``infra: the gateway is gone``."""
    cause: Cause | None = None
    """Whose fault a failure is; None: the infrastructure's. On an accepted attempt, ``verifier``: its scorer failed."""
    usable: bool = True
    """Whether an accepted attempt has a reward, and so counts towards the size of its group."""


def required_capabilities(task: Task) -> list[str]:
    """Return what a worker must be capable of: the task's needs, its agent, environment and sandbox. Sorted, no
    duplicates.
    """
    implied = [f"{kind}:{name}" for kind, name in (("agent", task.agent), ("env", task.env)) if name is not None]
    if (spec := task.sandbox) is not None:
        implied.append(f"isolation:{spec.isolation}" if spec.kind is None else f"sandbox:{spec.kind}")
    return sorted({*task.needs, *implied})


class RolloutState(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout as the dispatcher sees it."""

    rollout_id: str
    group_id: str
    run: str
    status: RolloutStatus
    since: float
    """Seconds since the epoch, UTC: when it was last queued or leased, or when it ended."""
    num_attempts: int
    """Attempts begun."""
    num_failures: int
    """Attempts that count towards ``max_attempts``."""
    worker: str | None = None
    """Its newest holder."""
    accepted: int | None = None
    """The attempt that counts; None while there is none."""
    errors: list[str] = []
    """What ended earlier leases, oldest first."""
    error_attempts: list[int] = []
    """[num_errors] the attempt that each error ended or interrupted."""
    checkpoint: str | None = None
    """Where its newest attempt can go on; None: it would begin again."""
    lease_seconds: float | None = None
    """Until its lease lapses; None: no worker holds it."""
    delay_seconds: float | None = None
    """Until its back-off ends; None: it does not wait."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """One group as the dispatcher sees it."""

    group_id: str
    run: str
    task_id: str
    task_type: str
    split: Split
    group_size: int
    """Usable rollouts that make it whole."""
    num_launched: int
    num_open: int
    """Rollouts that have no final status yet."""
    num_usable: int
    """Accepted rollouts that have a reward."""
    partial: ShortGroupPolicy
    is_closed: bool
    queued_at: float
    """Seconds since the epoch, UTC."""
    num_accepted: int | None = None
    """None until the group is closed."""
    fill: Fill | None = None
    """None until the group is closed."""
    closed_at: float | None = None
    num_surplus: int = 0
    """Rollouts that were cancelled while they ran, because enough others had ended."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts; None: there are none yet."""
    surplus_seconds: float | None = None
    """Mean time that the surplus had run when it was cancelled; None: there was no surplus."""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the dispatcher sees it. Counts are of rollouts since the run began, where no other unit is named."""

    run: str
    weight: float
    """Its share beside other runs."""
    quota: int | None = None
    """Most leases at once; None: no limit."""
    paused: str | None = None
    """Why none of its rollouts is leased; empty: paused without a reason, None: not paused."""
    is_failing: bool = False
    """It was paused because too many attempts failed."""
    num_queued: int
    num_delayed: int
    """Rollouts in back-off; an estimate where there are thousands, as is ``num_paused``."""
    num_paused: int
    num_leased: int
    num_accepted: int
    num_unusable: int
    """Accepted rollouts without a reward."""
    num_cancelled: int
    num_surplus: int
    """Cancelled because enough others of their group had ended, some before they began."""
    num_dead: int
    num_lapsed: int
    """Leases that ended for lack of a heartbeat."""
    causes: list[tuple[str, int]]
    """Failed attempts by cause."""
    accepted_lately: int
    """Number accepted in this minute and the four before it."""
    lately_seconds: float
    """Span of ``accepted_lately``: since the minute of the first one, a minute at least."""
    num_judged: int
    """Newest attempts over which ``failure_rate`` is taken."""
    failure_rate: float | None = None
    """Share of the newest attempts that failed; None: there are none."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts of groups that had a surplus; None: there were none."""
    surplus_seconds: float | None = None
    """Mean time that the surplus of these groups had run. Much longer than ``kept_seconds``: training is biased towards
    rollouts that end early."""


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as its heartbeats show it."""

    worker: str
    seen_at: float
    """Seconds since the epoch, UTC."""
    silent_seconds: float
    is_draining: bool
    """It finishes what it runs, claims nothing more and exits."""
    about: dict[str, str | int] = {}
    """What the worker reports about itself: target, slots, how many run."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much the dispatcher holds, over all runs."""

    now: float
    """Seconds since the epoch, UTC, by the server's clock, as all other times."""
    num_queued: int
    num_delayed: int
    """Rollouts in back-off."""
    num_paused: int
    num_leased: int
    num_dead: int
    num_open_groups: int
    paused_runs: list[str]


HELD: Final[tuple[RolloutStatus, ...]] = ("leased", "running", "scoring", "sealing")
"""A worker has the rollout, and a lease on it."""
OVER: Final[tuple[RolloutStatus, ...]] = ("completed", "truncated", "cancelled", "dead")
"""Final, except that ``retry_dead`` tries a dead rollout again."""
