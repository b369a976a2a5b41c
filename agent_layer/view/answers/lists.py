"""What the API answers about many trajectories: runs, their health and updates, queries, counts.

Times that end in ``_at`` are seconds since the epoch, UTC, but in rows, which are those of ``Store.query``.
None is "not known".
"""

from typing import Literal, Self, TypeAlias

import msgspec

from agent_layer.health import HealthFinding
from agent_layer.schema import AdvantageRule, LengthRule
from agent_layer.store import TrajectoryRow

HealthLevel: TypeAlias = Literal["ok", "warn", "stop", "unknown"]
FilterTexts: TypeAlias = dict[str, str]
"""Filters as parameters of ``/query``."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an answer, or a part of one."""

    @classmethod
    def from_record(cls, record: msgspec.Struct, **derived: object) -> Self:
        """Return the fields of a domain record that the answer has, beside those that are derived from it."""
        return msgspec.convert({**msgspec.structs.asdict(record), **derived}, cls)


class Info(Answer, frozen=True, kw_only=True):
    """What is looked at, and what the caller may do."""

    version: str
    namespace: str
    default_run: str
    is_operator: bool
    takes_writes: bool
    """Whether the server was started with ``--allow-writes``."""
    may_write: bool
    """Whether the caller may write."""
    is_archive: bool
    """Whether this is what a bucket held when the server began: there is no queue, and nothing changes."""
    cooled_runs: list[str]
    """Runs that only the bucket has. They are answered where they are named; no answer about all runs but ``/runs`` has
    them."""
    now: float


class RunLine(Answer, frozen=True, kw_only=True):
    """One run."""

    run: str
    num_trajectories: int
    num_accepted: int
    num_rewarded: int
    """Accepted trajectories with a reward."""
    mean_reward: float | None
    success_rate: float | None
    """Share of the accepted and rewarded ones with a reward above 0."""
    newest_version: int | None
    num_updates: int
    """Updates that led to the newest version."""
    newest_started_at: str | None
    """Start of its newest trajectory, RFC 3339."""
    health: HealthLevel
    is_evaluation: bool
    """Whether all of its trajectories are of split eval, from which no update learns."""
    finding: str | None
    """Name of the worst that is wrong with it, in the catalogue; None: nothing is."""
    finding_title: str | None
    """The same in the words of a headline."""
    is_cooled: bool
    """Whether only the bucket has it, as Redis lost or cooled it: no queue, no dead letters, no engines."""
    num_cooled: int
    """Its trajectories that only the bucket has; where Redis has others, these are in no other number."""


class RunList(Answer, frozen=True, kw_only=True):
    """All runs, the one with the newest trajectory first."""

    items: list[RunLine]


class AlarmLine(Answer, frozen=True, kw_only=True):
    """A kind of finding, and how many trajectories of the run have it."""

    kind: str
    num: int
    sentence: str
    filters: FilterTexts


class Health(Answer, frozen=True, kw_only=True):
    """Whether a run is all right."""

    level: HealthLevel
    sentence: str
    """The one sentence to read first: alarms before advice."""
    step: int | None
    """Update whose report it is from."""
    findings: list[HealthFinding]
    """Findings by the catalogue of ``agent_layer.health``, the worst first."""
    alarms: list[AlarmLine]


class Counts(Answer, frozen=True, kw_only=True):
    """Trajectories of a run. ``accepted`` and what follows from rewards are of accepted attempts."""

    trajectories: int
    accepted: int
    rewarded: int
    mean_reward: float | None
    success_rate: float | None
    by_status: dict[str, int]
    by_cause: dict[str, int]
    by_finding: dict[str, int]


class Version(Answer, frozen=True, kw_only=True):
    """The newest policy version."""

    number: int
    location: str
    created_at: float
    training_step: int | None
    weights_hash: str | None


class RoundLine(Answer, frozen=True, kw_only=True):
    """An evaluation round on held-out tasks."""

    step: int
    name: str
    round: str
    policy_version: int
    pass_rate: float | None
    reward_mean: float | None
    num_rewards: int
    num_asked: int


class FindingLine(Answer, frozen=True, kw_only=True):
    """A finding of the report of one step."""

    step: int
    name: str
    level: str
    sentence: str


class Progress(Answer, frozen=True, kw_only=True):
    """Updates of a run in columns of one length."""

    source: Literal["progress", "batches", "none"]
    """``batches``: the file with the reports is on another machine; what the stored batches say is there."""
    step: list[int]
    policy_version: list[int]
    ended_at: list[float]
    numbers: dict[str, list[float | None]]
    """Series by name of the field of ``StepProgress``: rewards, counts, seconds, staleness."""
    metrics: dict[str, list[float | None]]
    success_by_task: dict[str, list[float | None]]
    evaluations: list[RoundLine]
    findings: list[FindingLine]


class HeldOut(Answer, frozen=True, kw_only=True):
    """Whether held-out tasks stayed out of training, by what this machine has of the run."""

    level: Literal["ok", "warn", "unknown"]
    """``warn``: the last audit did not prove it; ``unknown``: there was no audit."""
    sentence: str


class RunAnswer(Answer, frozen=True, kw_only=True):
    """Whether a run is all right."""

    run: str
    is_evaluation: bool
    """Whether all of its trajectories are of split eval, from which no update learns."""
    is_cooled: bool
    """Whether only the bucket has it, as Redis lost or cooled it: no queue, no dead letters, no engines."""
    num_cooled: int
    """Its trajectories that only the bucket has; where Redis has others, these are in no other number."""
    health: Health
    held_out: HeldOut | None
    """None: the run holds nothing out."""
    counts: Counts
    newest_version: Version | None
    failures: list[TrajectoryRow]
    """The newest that failed, died, were lost or were truncated."""
    steps: Progress


class QueryAnswer(Answer, frozen=True, kw_only=True):
    """A page of trajectories, and the same question for the command line and for Python."""

    items: list[TrajectoryRow]
    cursor: str | None
    command: str
    python: str


class CountAnswer(Answer, frozen=True, kw_only=True):
    """How many trajectories match."""

    count: int


class FacetLine(Answer, frozen=True, kw_only=True):
    """The matching trajectories with one value of a field."""

    value: str | int | None
    count: int


class FacetAnswer(Answer, frozen=True, kw_only=True):
    """Values of fields among the matching trajectories, the most frequent first."""

    count: int
    facets: dict[str, list[FacetLine]]


class Bin(Answer, frozen=True, kw_only=True):
    """Rewards from ``low`` to below ``high``; None is an open end."""

    low: float | None
    high: float | None
    count: int
    filters: FilterTexts
    """Filters that select exactly these."""


class HistogramAnswer(Answer, frozen=True, kw_only=True):
    """Rewards of the matching trajectories."""

    bins: list[Bin]
    num_rewarded: int
    num_without: int
    """Trajectories without a reward."""


class SummaryLine(Answer, frozen=True, kw_only=True):
    """The matching trajectories that share some values."""

    by: dict[str, str | int | None]
    count: int
    num_rewarded: int
    mean_reward: float | None
    success_rate: float | None


class SummaryAnswer(Answer, frozen=True, kw_only=True):
    """What ``agent-layer summary`` prints."""

    items: list[SummaryLine]


class UpdateLine(Answer, frozen=True, kw_only=True):
    """One update of a run."""

    step: int
    trained_at: float
    policy_version: int
    num_rollouts: int
    num_samples: int
    num_deleted: int
    num_groups: int
    reward_mean: float | None


class UpdateList(Answer, frozen=True, kw_only=True):
    """Updates of a run, oldest first."""

    items: list[UpdateLine]


class Lane(Answer, frozen=True, kw_only=True):
    """A rollout that an update learned from, from the queue to the update."""

    trajectory_id: str
    group_id: str
    task_id: str | None
    damaged: str | None
    """Why its bytes cannot be read; then only its row and the batch are known."""
    reward: float
    """Reward as it entered the baseline."""
    reward_now: float | None
    """After later judgements."""
    policy_min: int | None
    policy_max: int | None
    num_tokens: int | None
    """Sampled tokens that the update had; None: it kept no columns."""
    num_trained: int | None
    """Those that were in the loss."""
    advantage: float | None
    """Mean over those in the loss."""
    queued_at: float | None
    started_at: float | None
    prepared_at: float | None
    run_ended_at: float | None
    scored_at: float | None
    sealed_at: float | None
    accepted_at: float | None
    trained_at: float


class ExclusionLine(Answer, frozen=True, kw_only=True):
    """A rollout that an update did not learn from, and why."""

    trajectory_id: str
    kind: str
    reason: str
    run: str | None
    step: int | None
    at: float | None


class GroupLine(Answer, frozen=True, kw_only=True):
    """A group in an update."""

    group_id: str
    num: int
    reward_mean: float
    is_zero_std: bool
    """Whether all rewards are equal, so that nothing is learned from it by a baseline of the group."""


class UpdateAnswer(Answer, frozen=True, kw_only=True):
    """What one update learned from."""

    run: str
    step: int
    batch_id: str
    policy_version: int
    trained_at: float
    num_samples: int
    num_deleted: int
    credit: str
    lengths: LengthRule
    advantages: AdvantageRule | None
    rollouts: list[Lane]
    groups: list[GroupLine]
    excluded: list[ExclusionLine]
    not_learned: list[str]
    """What else of this step is not in it, a sentence each, such as groups whose rewards are equal."""
    findings: list[HealthFinding]
    """Findings of the step's report, the worst first; empty also where that is not known."""
    gap_by_engine: dict[str, float | None]
    """Mean |trainer - engine| log-probability, by the engine's address; empty where it is not known. None: not a finite
    number."""


class EngineLine(Answer, frozen=True, kw_only=True):
    """One inference engine."""

    url: str
    run: str
    version: int
    model: str
    state: str
    is_drained: bool
    is_joined: bool
    epoch: int
    is_pushed: bool
    """Its owner pushes weights into it."""
    num_switches: int
    stall_seconds: float | None
    """Seconds that its last switch of weights held calls."""
    stalled_seconds: float
    """The same, of all switches."""
    newest_version: int | None
    """Newest version of its run; None: the run has none."""
    behind_seconds: float
    """Seconds since a newer version than its own is there; 0: it has the newest."""
    is_stale: bool
    """Whether that is longer than the alarm ``engine_behind`` allows."""
    held_seconds: float | None
    """Seconds that the switch in progress has held calls; None: none is in progress."""


class EngineList(Answer, frozen=True, kw_only=True):
    """Engines by address."""

    items: list[EngineLine]
    gateways: list[str]
    """Gateways that are up."""


class CatalogueLine(Answer, frozen=True, kw_only=True):
    """One thing that can be wrong with a run."""

    name: str
    measures: str
    unit: str
    warn: float | None
    stop: float | None
    steps: int
    """Window; 0: it is measured now, without a trainer."""
    advice: str


class CatalogueList(Answer, frozen=True, kw_only=True):
    """The catalogue of ``agent_layer.health``."""

    items: list[CatalogueLine]
