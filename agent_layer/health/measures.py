"""Measures of a run's health: each is one number, over its last steps or of this moment.

A measure of steps gets the reports of a run, oldest first, the judged one last, and the number of steps of its window.
It returns None where the window is not known: too few steps, or steps without what it needs. A measure of this moment
gets ``RunSnapshot``, and returns None where it is not known, or where it would mean nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from math import inf, log2
from statistics import correlation, fmean, median, pstdev
from typing import TypeAlias

import msgspec

from agent_layer.health.progress import StepProgress

Reports: TypeAlias = Sequence[StepProgress]
Measure: TypeAlias = Callable[[Reports, int], float | None]
StepMeasure: TypeAlias = Callable[[StepProgress], float | None]

SUCCESS_REACHED = 0.9
"""Above this success, equal rewards and a low entropy are what success looks like, and no finding."""
LOW_ENTROPY = 0.6
"""Nats for each token, below which a policy hardly tries anything else."""
_STANDS_OUT = 3.0
"""Times the gap of the next engine, from which on one engine is named rather than all."""
_SUCCESS_GONE = 0.05
_MIN_REFERENCE = 5
"""Steps that make a reference to compare with."""
_REFERENCE_STEPS = 20
_MAX_PAIRED_TASKS = 24
_LEAST_DEVIATION = 0.1
"""Least deviation of the success of a task that moves."""
MIN_JUDGED = 16
"""Fewer attempts, or ended rollouts, have no share worth a look."""
_MIN_INTERVALS = 3
_LEAST_INTERVAL_SECONDS = 60.0


def lasting(measure: StepMeasure) -> Measure:
    """Return the measure that exceeds a threshold when each of the last steps does: the smallest of their numbers."""
    return lambda reports, steps: min(_last_known(measure, reports, steps), default=None)


def lasting_below(measure: StepMeasure) -> Measure:
    """Return the measure that is below a threshold when each of the last steps is: the largest of their numbers."""
    return lambda reports, steps: max(_last_known(measure, reports, steps), default=None)


def _last_known(measure: StepMeasure, reports: Reports, steps: int) -> list[float]:
    """Return the numbers of the last ``steps`` reports; none if one is not known."""
    known = [number for report in reports[-steps:] if (number := measure(report)) is not None]
    return known if len(known) == steps else []


def share_of_rollouts(count: Callable[[StepProgress], int]) -> StepMeasure:
    """Return the measure of a count of rollouts as their share, 0 to 1."""
    return lambda report: count(report) / report.num_rollouts if report.num_rollouts else None


def share_of_calls(count: Callable[[StepProgress], int]) -> StepMeasure:
    """Return the measure of a count of model calls as their share, 0 to 1."""
    return lambda report: count(report) / report.num_calls if report.num_calls else None


def read_metric(*names: str) -> StepMeasure:
    """Return the measure of a metric of the trainer; of several names, the sum of those that the report has."""

    def read(report: StepProgress) -> float | None:
        found = [report.metrics[name] for name in names if name in report.metrics]
        # what is not finite is beyond every threshold
        return sum(inf if one is None else one for one in found) if found else None

    return read


def engine_with_gap(reports: Reports, _steps: int) -> str | None:
    """Return the engine whose log-probabilities differ most from the trainer's; None where all differ alike."""
    gaps = {engine: inf if gap is None else gap for engine, gap in reports[-1].gap_by_engine.items()}
    if len(gaps) < 2:  # one cannot stand out
        return None
    (engine, largest), (_, second) = sorted(gaps.items(), key=lambda one: -one[1])[:2]
    return engine if largest > _STANDS_OUT * second else None


def before_success(judge: Callable[[StepMeasure], Measure], measure: StepMeasure) -> Measure:
    """Return the measure that is not known for steps in which the policy has learned to succeed nearly always.

    Where no rollout has failed since the first step, success tells nothing: ``rollouts.success_above`` is too low.
    """

    def measure_steps(reports: Reports, steps: int) -> float | None:
        has_failed = reports[0].step > 1 or any((one.success or 0.0) < 1.0 for one in reports)

        def read(report: StepProgress) -> float | None:
            return None if has_failed and (report.success or 0.0) >= SUCCESS_REACHED else measure(report)

        return judge(read)(reports, steps)

    return measure_steps


def self_inflicted_task(reports: Reports, _steps: int) -> str | None:
    """Return the task whose rollouts ended most sandboxes of their own in the last step."""
    counts = reports[-1].self_inflicted
    return max(counts, key=counts.__getitem__, default=None)


def share_of_dead_groups(report: StepProgress) -> float | None:
    """Return the share of groups whose rewards are all equal."""
    num_groups = report.num_whole_groups + report.num_short_groups + report.num_dropped_groups
    return report.num_dead_groups / num_groups if num_groups else None


def rise_of_entropy(reports: Reports, steps: int) -> float | None:
    """Return by how much the entropy of each of the last steps exceeds that of the steps before."""
    now, before = _now_and_before(read_metric("entropy"), reports, steps)
    return min(now) - median(before) if now and before else None


def drift_of_length(reports: Reports, steps: int) -> float | None:
    """Return by how many doublings or halvings the tokens of a rollout differ from those of the steps before."""
    now, before = _now_and_before(_tokens_of_rollout, reports, steps)
    drifts = [log2(length / median(before)) for length in now] if before else []
    return max(min(drifts), -max(drifts)) if drifts else None


def _tokens_of_rollout(report: StepProgress) -> float | None:
    return report.num_tokens / report.num_rollouts if report.num_tokens and report.num_rollouts else None


def _now_and_before(measure: StepMeasure, reports: Reports, steps: int) -> tuple[list[float], list[float]]:
    """Return the numbers of the last steps, and those of the steps before; none where they are too few."""
    before = [number for report in reports[:-steps] if (number := measure(report)) is not None][-_REFERENCE_STEPS:]
    return _last_known(measure, reports, steps), before if len(before) >= _MIN_REFERENCE else []


def lost_success(reports: Reports, steps: int) -> float | None:
    """Return the highest earlier success of a task that had none in any of the last steps; 0 without such a task.

    The earlier success is the best mean over as many results one after another.
    """
    window, earlier = reports[-steps:], reports[:-steps]
    return max((success for _, success in _gone_tasks(window, earlier, steps)), default=0.0)


def _gone_tasks(window: Reports, earlier: Reports, steps: int) -> Iterator[tuple[str, float]]:
    """Yield the tasks without success in the window, each with the best mean over as many earlier results."""
    for task in window[-1].success_by_task:
        if max(report.success_by_task.get(task, 1.0) for report in window) <= _SUCCESS_GONE:
            series = _results(earlier, task)
            means = (fmean(series[start : start + steps]) for start in range(len(series) - steps + 1))
            yield task, max(means, default=0.0)


def forgotten_task(reports: Reports, steps: int) -> str | None:
    """Return the task whose earlier success ``lost_success`` returns."""
    window, earlier = reports[-steps:], reports[:-steps]
    return max(_gone_tasks(window, earlier, steps), key=lambda one: one[1], default=(None, 0.0))[0]


def jump_to_success(reports: Reports, steps: int) -> float | None:
    """Return by how much success rose at the beginning of steps in which every rollout succeeded; 0: it did not.

    A policy that learns approaches 1 step by step. A scorer that answers the same to everything jumps.
    """
    if len(reports) < steps or not all(map(_is_all_success, reports[-steps:])):
        return 0.0 if len(reports) >= steps else None
    before = [report.success for report in reports if not _is_all_success(report) and report.success is not None]
    if not before and reports[0].step > 1:
        return None  # the steps before are forgotten
    return 1.0 - (before[-1] if before else 0.0)


def _is_all_success(report: StepProgress) -> bool:
    num_groups = report.num_whole_groups + report.num_short_groups
    return report.success == 1.0 and 0 < num_groups <= report.num_dead_groups


def swap_of_success(reports: Reports, steps: int) -> float | None:
    """Return the lowest correlation of the success of two tasks over the last steps, where the entropy stays low."""
    window = reports[-steps:]
    entropies = _last_known(read_metric("entropy"), reports, steps)
    if not entropies or max(entropies) > LOW_ENTROPY:
        return None
    series = [one for task in window[-1].success_by_task if len(one := _results(window, task)) == steps]
    moving = sorted((one for one in series if pstdev(one) >= _LEAST_DEVIATION), key=pstdev)[-_MAX_PAIRED_TASKS:]
    return min((correlation(one, other) for one, other in combinations(moving, 2)), default=None)


def _results(reports: Reports, task: str) -> list[float]:
    """Return the known results of a task, oldest first."""
    return [report.success_by_task[task] for report in reports if task in report.success_by_task]


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One run at one moment, as it is known without its trainer: its work, its engines, its last steps.

    The defaults are those of a run that is over.
    """

    now: float
    """Seconds since the epoch, UTC."""
    num_waiting: int = 0
    """Rollouts that wait for a worker, those in back-off included."""
    num_held: int = 0
    """Rollouts that workers hold."""
    num_accepted: int = 0
    num_accepted_lately: int = 0
    """Rollouts accepted in the last minutes."""
    num_dead: int = 0
    is_paused: bool = False
    is_refused: bool = False
    """Paused because a server refuses the workers."""
    oldest_wait_seconds: float | None = None
    """Since the oldest group that is open was queued; None: there is none."""
    num_unserved: int = 0
    """Waiting rollouts: what they need is offered by no worker that is up."""
    num_judged: int = 0
    """Newest attempts over which ``failure_rate`` is taken."""
    failure_rate: float | None = None
    step_times: Sequence[float] = ()
    """When its last steps ended, oldest first, in seconds since the epoch."""
    unserved_needs: str | None = None
    """What most of ``num_unserved`` need, with spaces between."""
    engine_behind_seconds: float | None = None
    """Time since which a newer version than that of its most backward engine is known; None: no engine serves it."""
    engine_behind: str | None = None
    """Address of that engine."""
    engine_held_seconds: float | None = None
    """Time for which a switch of weights has held calls; None: no engine serves it."""
    engine_held: str | None = None
    """Address of the engine that is held for the longest time."""
    num_engines: int | None = None
    """Engines that may answer calls of any run; None: no gateway is up, or another party's model is the policy."""
    data_lost_at: float | None = None
    """When it was noticed in the last day that Redis lost data, in seconds since the epoch; None: it was not."""


MeasureNow: TypeAlias = Callable[[RunSnapshot], float | None]


def engines_left(facts: RunSnapshot) -> float | None:
    """Return the number of engines; None where none is needed."""
    return facts.num_engines if facts.num_waiting or facts.num_held else None


def starved_seconds(facts: RunSnapshot) -> float | None:
    """Return for how long work waits while no worker holds or ended any; 0 where it runs."""
    if facts.is_paused or not facts.num_waiting:
        return None
    return 0.0 if facts.num_held or facts.num_accepted_lately else _waited_seconds(facts)


def unserved_seconds(facts: RunSnapshot) -> float | None:
    """Return for how long work waits that no worker can do; 0 where each has a worker."""
    if facts.is_paused or not facts.num_waiting:
        return None
    return _waited_seconds(facts) if facts.num_unserved else 0.0


def _waited_seconds(facts: RunSnapshot) -> float | None:
    """Return for how long the oldest group waits, since the last step at most: until then the run was served."""
    if facts.oldest_wait_seconds is None or not facts.step_times:
        return facts.oldest_wait_seconds
    return min(facts.oldest_wait_seconds, max(0.0, facts.now - facts.step_times[-1]))


def stalled_intervals(facts: RunSnapshot) -> float | None:
    """Return how many of its usual intervals have passed since the last step, where work of the run is left."""
    intervals = [later - earlier for earlier, later in pairwise(facts.step_times)]
    if facts.is_paused or not facts.num_waiting + facts.num_held or len(intervals) < _MIN_INTERVALS:
        return None
    return (facts.now - facts.step_times[-1]) / max(_LEAST_INTERVAL_SECONDS, median(intervals))


def share_of_failures(facts: RunSnapshot) -> float | None:
    """Return the share of the newest attempts that failed."""
    return facts.failure_rate if facts.num_judged >= MIN_JUDGED else None


def share_of_lost_tasks(facts: RunSnapshot) -> float | None:
    """Return the share of ended rollouts that were given up."""
    ended = facts.num_dead + facts.num_accepted
    return facts.num_dead / ended if ended >= MIN_JUDGED else None
