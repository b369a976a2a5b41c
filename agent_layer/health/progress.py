"""Reports of training steps, and the file of a run that holds one JSON line per step.

The trainer appends to it; displays, plots, the page and people read it.
"""

from pathlib import Path

from agent_layer.health.findings import HealthFinding
from agent_layer.health.restarts import Restart
from agent_layer.infra import LineReader, append_line
from agent_layer.schema import Record
from agent_layer.settings import Settings


class RoundProgress(Record, frozen=True, kw_only=True):
    """An evaluation round on held-out tasks."""

    name: str
    """Name of the held-out tasks."""
    round: str
    """Name of the round, as ``agent-layer eval --round`` shows it."""
    policy_version: int
    """Policy version of all its tokens."""
    pass_rate: float | None
    """pass@1; None: no rollout has a reward."""
    reward_mean: float | None
    num_rewards: int
    num_asked: int
    """Rollouts; fewer rewards: some failed, or were sampled by another version."""

    def __str__(self) -> str:
        """Return the round as a part of its step's line."""
        passed = "-" if self.pass_rate is None else f"{self.pass_rate:.2f}"
        missing = "" if self.num_rewards == self.num_asked else f", {self.num_rewards} of {self.num_asked} rollouts"
        return f"  held out: {self.name} {passed} (version {self.policy_version}{missing})"


class StepProgress(Record, frozen=True, kw_only=True):
    """One update of the policy."""

    run: str
    step: int
    """Updates so far, this one included; the first is 1."""
    policy_version: int
    """Newest version after this update; as before it when the weights did not change."""
    ended_at: float
    """Seconds since the epoch, UTC."""
    num_rollouts: int
    num_samples: int
    num_calls: int
    num_tokens: int
    """Trained tokens."""
    reward_mean: float | None
    """Over rollouts with a reward; None when there was none."""
    success: float | None
    """Share of rollouts with a reward above 0, as a mean over tasks."""
    success_by_task: dict[str, float] = {}
    num_null_rewards: int = 0
    """Rollouts that failed for a cause other than the policy; they are in no baseline."""
    num_dead_groups: int = 0
    """Groups that teach nothing, because their rewards equal all with which they are compared: those of the group, or
    of the step with ``reinforce++``."""
    num_whole_groups: int = 0
    """Groups with as many usable rollouts as requested."""
    num_short_groups: int = 0
    """Groups with fewer; those with at least two rewards are trained, too."""
    num_dropped_groups: int = 0
    """Groups that came empty because too few rollouts were usable; others were submitted in their place."""
    num_surplus_rollouts: int = 0
    """Rollouts that were cancelled because enough others of their group had ended."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts of groups that had a surplus; None: there were none."""
    surplus_seconds: float | None = None
    """Mean running time of that surplus. Much longer than ``kept_seconds``: learning favours rollouts that end
    early."""
    num_stale_rollouts: int = 0
    """Rollouts with a token older than ``max_staleness`` allows; their groups were redone."""
    redone_by_task: dict[str, int] = {}
    """Groups that were redone because one of their rollouts was too old, by task id."""
    untrainable: dict[str, int] = {}
    """Rollouts left out because they cannot be trained exactly, by kind of the reason."""
    num_dropped_steps: int = 0
    """Policy steps that are not trained because they were aborted, failed or never ended."""
    num_overlong: int = 0
    """Rollouts that ran out of turns, tokens, time or context, or whose last answer was cut off at its longest;
    ``rollouts.overlong`` decides what they count as."""
    self_inflicted: dict[str, int] = {}
    """Rollouts whose own commands ended a sandbox or used up their time, by task id: they count, mostly with 0."""
    cut_tokens: dict[str, int] = {}
    """Sampled tokens that are not trained because they are beyond ``optimizer.max_row_tokens``, by task id."""
    num_skipped_optimizer_steps: int = 0
    """Optimizer steps without effect, because their gradient was not finite; an update of such steps only makes no
    policy version."""
    num_fake_zeros: int = 0
    """Rollouts with reward 0 whose policy made no call, or whose last call failed."""
    num_gaps: int = 0
    """Rollouts with a call that never ended, or with fewer recorded calls than the gateway counted."""
    num_forks: int = 0
    """Calls whose prompt breaks the prefix that it should continue."""
    staleness_mean: float = 0.0
    """Versions between sampling and training, averaged over trained tokens."""
    staleness_max: int = 0
    wait_seconds: float = 0.0
    """Waiting for whole groups."""
    update_seconds: float = 0.0
    switch_seconds: float = 0.0
    """Writing weights, and switching each engine."""
    evaluation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    evaluations: list[RoundProgress] = []
    """Rounds that ended since the step before: of the version after this update and, in the report of the first step,
    of the first weights."""
    metrics: dict[str, float | None] = {}
    """Metrics of veRL; ``entropy``; ``logprob_gap`` and ``logprob_gap_mean``: largest and mean difference of a
    log-probability between trainer and engine, over tokens that the trained weights sampled; ``ratio_gap``: largest
    |r - 1| of a trained token in the first minibatch, r = its probability there / at sampling. None: not a finite
    number."""
    gap_by_engine: dict[str, float | None] = {}
    """``logprob_gap_mean`` of each engine, by its address; engines that sampled nothing by the trained weights are
    left out. None: not a finite number."""
    restarts: list[Restart] = []
    """What died and was started again since the step before."""
    health: list[HealthFinding] = []
    """What is wrong, the worst first; see the catalogue of ``agent_layer.health``."""

    @property
    def num_untrainable(self) -> int:
        """Rollouts left out because they cannot be trained exactly."""
        return sum(self.untrainable.values())

    def __str__(self) -> str:
        """Return the step as one line."""
        return (
            f"{_result(self)}{_groups(self)}{_untrainable(self)}{_lengths(self)}{''.join(map(str, self.evaluations))}"
            f"{f'  restarts {len(self.restarts)}' if self.restarts else ''}"
        )


def progress_path(settings: Settings, run: str) -> Path:
    """Return the progress file of a run."""
    return settings.dir / "runs" / run / "progress.jsonl"


def append_progress(path: Path, progress: StepProgress) -> None:
    """Append one line, in one write."""
    append_line(path, progress)


class ProgressReader:
    """Reads the steps of a run again and again; each time only the lines that are new."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path, StepProgress)

    def read(self) -> list[StepProgress]:
        """Return all steps, oldest first; a step that was repeated after a restart keeps its last line."""
        self._lines.read_on()
        return sorted({one.step: one for one in self._lines.records}.values(), key=lambda one: one.step)

    def read_on(self) -> list[StepProgress]:
        """Return the steps that were done since the last call of either, repeated ones included."""
        return self._lines.read_on()


def read_progress(path: Path) -> list[StepProgress]:
    """Return all steps of a run; see ``ProgressReader``."""
    return ProgressReader(path).read()


def _result(progress: StepProgress) -> str:
    success = "-" if progress.success is None else f"{progress.success:.2f}"
    reward = "-" if progress.reward_mean is None else f"{progress.reward_mean:+.3f}"
    return (
        f"step {progress.step:4d}  version {progress.policy_version:4d}  success {success}  reward {reward}"
        f"  staleness {progress.staleness_mean:.2f}  calls {progress.num_calls}"
        f"  seconds: wait {progress.wait_seconds:.1f} update {progress.update_seconds:.1f}"
        f" switch {progress.switch_seconds:.2f}"
    )


def _groups(progress: StepProgress) -> str:
    """Return counts of short, dropped and surplus rollouts, if there are any."""
    short, dropped, surplus = progress.num_short_groups, progress.num_dropped_groups, progress.num_surplus_rollouts
    line = f"  groups: short {short} dropped {dropped}" if short + dropped else ""
    if progress.kept_seconds is None or progress.surplus_seconds is None:
        return line
    return f"{line}  kept {progress.kept_seconds:.1f} s, surplus of {surplus} {progress.surplus_seconds:.1f} s"


def _untrainable(progress: StepProgress) -> str:
    """Return the number of rollouts that could not be trained, and why, if there are any."""
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(progress.untrainable.items()))
    return f"  untrainable {progress.num_untrainable} ({kinds})" if kinds else ""


def _lengths(progress: StepProgress) -> str:
    """Return the number of overlong rollouts and of cut tokens, if there are any."""
    overlong = f"  overlong {progress.num_overlong}" if progress.num_overlong else ""
    num_cut = sum(progress.cut_tokens.values())
    return f"{overlong}  cut {num_cut} tokens of {len(progress.cut_tokens)} tasks" if num_cut else overlong
