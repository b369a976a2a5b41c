"""What the API answers about what runs now: workers, the queue, dead letters, engines, sandboxes."""

from typing import Literal

from agent_layer.view.answers.lists import Answer


class WorkerLine(Answer, frozen=True, kw_only=True):
    """One worker as its heartbeats show it."""

    worker: str
    state: Literal["up", "draining", "silent"]
    """``silent``: beyond ``lease_seconds``, so its leases have lapsed."""
    seen_at: float
    silent_seconds: float
    slots: int | None
    held: int | None
    """Rollouts that it runs, scores or stores."""
    agent: str | None
    offers: list[str]
    """Needs of tasks that it meets."""
    about: dict[str, str | int]
    """All that it reports of itself."""


class WorkerList(Answer, frozen=True, kw_only=True):
    """Workers seen in the last day, the longest silent first."""

    items: list[WorkerLine]
    lease_seconds: float
    """A worker is silent beyond this."""


class QueueTotals(Answer, frozen=True, kw_only=True):
    """Rollouts over all runs."""

    num_queued: int
    num_delayed: int
    """Rollouts in back-off."""
    num_paused: int
    num_leased: int
    num_dead: int
    num_open_groups: int


class RunQueue(Answer, frozen=True, kw_only=True):
    """The queue of one run."""

    run: str
    weight: float
    quota: int | None
    paused: str | None
    """Why nothing of it is leased; None: it is not paused."""
    is_failing: bool
    num_queued: int
    num_delayed: int
    num_paused: int
    num_leased: int
    num_accepted: int
    num_unusable: int
    num_cancelled: int
    num_surplus: int
    num_dead: int
    num_lapsed: int
    accepted_lately: int
    lately_seconds: float
    failure_rate: float | None
    causes: dict[str, int]
    """Failed attempts by whose fault it was."""


class Backlog(Answer, frozen=True, kw_only=True):
    """Rollouts that wait and need the same of a worker."""

    needs: list[str]
    num: int
    num_workers: int
    """Workers that are up and offer all of it; 0: nothing will run them."""


class LeaseLine(Answer, frozen=True, kw_only=True):
    """A rollout that a worker holds."""

    rollout_id: str
    trajectory_id: str
    """Trajectory of the attempt under way."""
    run: str
    status: str
    worker: str | None
    since: float
    lease_seconds: float | None
    """Until the lease lapses unless it is renewed."""
    is_lapsing: bool
    """Whether its worker has missed a heartbeat, so that the lease lapses soon."""
    num_attempts: int


class QueueAnswer(Answer, frozen=True, kw_only=True):
    """What waits and what runs."""

    now: float
    totals: QueueTotals
    runs: list[RunQueue]
    backlog: list[Backlog]
    leases: list[LeaseLine]
    """Those that lapse first, at most 200."""


class DeadLine(Answer, frozen=True, kw_only=True):
    """A rollout that was given up."""

    rollout_id: str
    group_id: str
    run: str
    died_at: float
    num_attempts: int
    num_failures: int
    worker: str | None
    errors: list[str]
    """Errors of all its attempts, oldest first."""


class ErrorCount(Answer, frozen=True, kw_only=True):
    """How many of the listed rollouts ended with an error."""

    error: str
    num: int


class DeadList(Answer, frozen=True, kw_only=True):
    """Dead letters, newest first."""

    total: int
    items: list[DeadLine]
    by_error: list[ErrorCount]
    """Counts by the last error of the listed ones."""


class BoxLine(Answer, frozen=True, kw_only=True):
    """A sandbox that a worker has taken."""

    box: str
    kind: str
    role: str
    task: str
    owner: str
    taken_at: float


class BoxList(Answer, frozen=True, kw_only=True):
    """Sandboxes of this machine and user, oldest first."""

    items: list[BoxLine] | None
    """None: not known."""
