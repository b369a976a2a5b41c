"""What the API answers about how a run learns, and about what fails in it."""

from agent_layer.store import TrajectoryRow
from agent_layer.view.answers.lists import Answer, FacetLine, FilterTexts, RoundLine


class LearningPoint(Answer, frozen=True, kw_only=True):
    """Accepted trajectories that share a value and the newest policy version of their tokens."""

    key: str
    version: int | None
    count: int
    num_rewarded: int
    mean_reward: float | None
    success_rate: float | None
    filters: FilterTexts
    """Filters that select these, and those which the version sampled in part."""


class Regression(Answer, frozen=True, kw_only=True):
    """An evaluation round that passed less than the round of the same name before it."""

    name: str
    from_step: int
    to_step: int
    from_version: int
    to_version: int
    from_rate: float
    to_rate: float
    is_clear: bool
    """The drop is more than two standard errors; else chance may explain it."""


class LearningAnswer(Answer, frozen=True, kw_only=True):
    """How a run learns."""

    run: str
    by: str
    points: list[LearningPoint]
    """Points by key, then version."""
    evaluations: list[RoundLine]
    """From the reports of the trainer, oldest first."""
    regressions: list[Regression]


class ErrorKind(Answer, frozen=True, kw_only=True):
    """Failed attempts whose errors read alike but for numbers and ids."""

    kind: str
    num: int
    cause: str | None
    """Whose fault the newest one is."""
    newest: str
    """The newest one's whole error."""
    examples: list[str]
    """The newest trajectories, at most three."""


class SelfInflicted(Answer, frozen=True, kw_only=True):
    """Attempts at one task, of one policy version, whose own commands ended a sandbox or used up their time."""

    task_id: str
    version: int | None
    """None: none of their tokens has a version."""
    num: int


class FailuresAnswer(Answer, frozen=True, kw_only=True):
    """Attempts that failed, died, were lost or were truncated."""

    num: int
    num_all: int
    """Matching trajectories, whatever their status."""
    by_status: list[FacetLine]
    by_cause: list[FacetLine]
    by_task_type: list[FacetLine]
    num_read: int
    """The newest ones, whose errors were read."""
    errors: list[ErrorKind]
    self_inflicted: list[SelfInflicted]
    """Most first."""
    newest: list[TrajectoryRow]
