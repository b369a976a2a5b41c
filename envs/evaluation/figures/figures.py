"""What a round found out, computed from its attempts. Pure: the live view, the report and the record use the same."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from agent_layer.infra import mean, quantile
from envs.evaluation.figures.estimates import (
    Estimate,
    estimate_mean,
    estimate_pass_at_k,
    estimate_rate,
    wilson_interval,
)

_MAX_ROWS = 12
"""Values of a label, or task types, for which there is a row each."""


Exclusion: TypeAlias = Literal["version", "changed", "cost"]
"""An attempt with tokens of another policy version than the round measures; one whose agent, task or the like has
changed since (``--changed``); one that ``--max-cost`` cut short."""


class TaskRef(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a round."""

    id: str
    input_hash: str
    """The same in every round that asks the same."""
    task_type: str = "default"
    labels: dict[str, str] = {}
    calls_optional: bool = False
    content_hash: str | None = None
    """Hash of id, input, grading and scorer; None: a round of an earlier release."""


class MeasuredAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of one stored attempt."""

    trajectory_id: str
    rollout_id: str
    task_id: str
    is_accepted: bool
    status: str
    cause: str | None
    reward: float | None
    error: str | None = None
    """Why it failed."""
    is_tampered: bool = False
    excluded: Exclusion | None = None
    """Why it does not count; None: it does."""
    num_calls: int = 0
    """To the evaluated model."""
    prompt_tokens: int = 0
    response_tokens: int = 0
    num_uncounted: int = 0
    """Calls whose tokens are not known, because their server did not count them."""
    cost: float = 0.0
    """US dollars of all calls that have a price, judges included."""
    unpriced: list[str] = []
    """Models that were called and have no price."""
    seconds: float | None = None

    @property
    def has_reward(self) -> bool:
        """Whether it is accepted with a reward."""
        return self.is_accepted and self.reward is not None

    @property
    def is_usable(self) -> bool:
        """Whether it counts: accepted with a reward, and not excluded."""
        return self.has_reward and self.excluded is None


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards of one task's rollouts."""

    id: str
    input_hash: str
    rewards: list[float]
    """[at most n]; fewer where rollouts are null or missing."""

    def num_passed(self, threshold: float) -> int:
        """Count the rewards that are at least the threshold."""
        return sum(reward >= threshold for reward in self.rewards)

    def pass_rate(self, threshold: float) -> float:
        """Return the share that passed; there must be a reward."""
        return self.num_passed(threshold) / len(self.rewards)


class PassAtK(msgspec.Struct, frozen=True, kw_only=True):
    """pass@k over the tasks that have at least k rewards."""

    k: int
    num_tasks: int
    estimate: Estimate


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that share a type or a label."""

    field: str
    value: str
    num_tasks: int
    num_rewards: int
    pass_at_1: Estimate | None
    mean_reward: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a round. A null reward is missing in all of them, never 0."""

    num_tasks: int
    num_asked: int
    """Rollouts: tasks times n."""
    num_rewards: int
    """Rollouts that count; the round is complete when this is ``num_asked``."""
    pass_at: list[PassAtK] = []
    mean_reward: Estimate | None = None
    causes: dict[str, int] = {}
    """Attempts by what went wrong: truncated and tampering have a reward; infra, verifier and user have none; those
    that are excluded do not count."""
    num_attempts: int = 0
    """All, those that failed and were run again included."""
    last_error: str | None = None
    """Error of the newest attempt without a reward."""
    num_without_call: int = 0
    """Rollouts that count although the agent did not call the model, of tasks that do not allow it."""
    prompt_tokens: int = 0
    response_tokens: int = 0
    num_uncounted: int = 0
    cost: float = 0.0
    unpriced: list[str] = []
    seconds_p50: float | None = None
    seconds_p90: float | None = None
    seconds_max: float | None = None
    slices: list[Slice] = []

    @property
    def pass_at_1(self) -> Estimate | None:
        """None: no task has a reward."""
        return next((one.estimate for one in self.pass_at if one.k == 1), None)

    @property
    def is_complete(self) -> bool:
        """Whether every rollout has a reward."""
        return self.num_rewards == self.num_asked


class RoundSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By what a round is measured."""

    n: int
    """Rollouts of each task."""
    threshold: float
    """Least reward of a rollout that passed."""
    seed: int
    """Seed of the bootstrap."""


def collect_results(
    tasks: Sequence[TaskRef], attempts: Iterable[MeasuredAttempt], yardstick: RoundSettings
) -> list[TaskResult]:
    """Return the rewards of each task, [num_tasks]; a rollout counts once, and no task has more than n."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for one in attempts:
        if one.is_usable and one.reward is not None:
            found[one.task_id][one.rollout_id] = one.reward
    return [
        TaskResult(
            id=task.id,
            input_hash=task.input_hash,
            rewards=[reward for _, reward in sorted(found[task.id].items())][: yardstick.n],
        )
        for task in tasks
    ]


def compute_figures(
    tasks: Sequence[TaskRef], attempts: Sequence[MeasuredAttempt], yardstick: RoundSettings
) -> tuple[Figures, list[TaskResult]]:
    """Return the figures of a round, and the rewards of its tasks."""
    results = collect_results(tasks, attempts, yardstick)
    means = [mean(result.rewards) for result in results if result.rewards]
    seconds = [one.seconds for one in attempts if one.is_usable and one.seconds is not None]
    optional = {task.id for task in tasks if task.calls_optional}
    figures = Figures(
        num_tasks=len(tasks),
        num_asked=len(tasks) * yardstick.n,
        num_rewards=sum(len(result.rewards) for result in results),
        pass_at=_estimate_pass(results, yardstick),
        mean_reward=Estimate(value=means[0]) if len(set(means)) == 1 else estimate_mean(means, yardstick.seed),
        causes=count_causes(attempts),
        num_attempts=len(attempts),
        last_error=next((one.error for one in reversed(attempts) if not one.is_usable and one.error), None),
        num_without_call=sum(one.is_usable and not one.num_calls and one.task_id not in optional for one in attempts),
        prompt_tokens=sum(one.prompt_tokens for one in attempts),
        response_tokens=sum(one.response_tokens for one in attempts),
        num_uncounted=sum(one.num_uncounted for one in attempts),
        cost=sum(one.cost for one in attempts),
        unpriced=sorted({model for one in attempts for model in one.unpriced}),
        seconds_p50=quantile(seconds, 0.5),
        seconds_p90=quantile(seconds, 0.9),
        seconds_max=max(seconds, default=None),
        slices=_slice(tasks, results, yardstick),
    )
    return figures, results


def count_causes(attempts: Iterable[MeasuredAttempt]) -> dict[str, int]:
    """Count attempts by what went wrong."""
    counts = Counter[str]()
    for one in attempts:
        if one.is_tampered:
            counts["tampering"] += 1
        elif one.is_accepted and one.excluded is not None:
            counts[one.excluded] += 1
        elif one.is_accepted and one.status == "truncated" and one.cause in (None, "policy"):
            counts["truncated"] += 1
        elif one.is_accepted and one.reward is None:
            counts[one.cause or "verifier"] += 1
        elif one.status in ("failed", "lost"):  # what was not accepted for another reason is another holder's now
            counts[one.cause or "infra"] += 1
    return dict(counts)


def mean_pass_rate(results: Iterable[TaskResult], threshold: float) -> float | None:
    """Return pass@1 without an interval, for views that change often; None: no task has a reward."""
    rates = [result.pass_rate(threshold) for result in results if result.rewards]
    return mean(rates) if rates else None


def _estimate_pass(results: Sequence[TaskResult], yardstick: RoundSettings) -> list[PassAtK]:
    ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < yardstick.n]
    found: list[PassAtK] = []
    for k in [*ks, yardstick.n]:
        enough = [one for one in results if len(one.rewards) >= k]
        estimate = _estimate_pass_at(enough, k, yardstick)
        if estimate is not None:
            found.append(PassAtK(k=k, num_tasks=len(enough), estimate=estimate))
    return found


def _estimate_pass_at(results: Sequence[TaskResult], k: int, yardstick: RoundSettings) -> Estimate | None:
    counts = [(len(one.rewards), one.num_passed(yardstick.threshold)) for one in results]
    if len(counts) == 1 and k == 1:  # its rollouts are all that there is
        return wilson_interval(*counts[0])
    return estimate_rate([estimate_pass_at_k(num, passed, k) for num, passed in counts], yardstick.seed)


def _slice(tasks: Sequence[TaskRef], results: Sequence[TaskResult], yardstick: RoundSettings) -> list[Slice]:
    """Return a row for each task type and each value of a label, where there are a few of them."""
    fields: dict[str, dict[str, list[TaskResult]]] = {}
    for task, result in zip(tasks, results, strict=True):
        for field, value in {"task_type": task.task_type, **_prefixed(task.labels)}.items():
            fields.setdefault(field, {}).setdefault(value, []).append(result)
    return [
        _make_slice(field, value, members, yardstick)
        for field, values in fields.items()
        if 1 < len(values) <= _MAX_ROWS
        for value, members in sorted(values.items())
    ]


def _prefixed(labels: Mapping[str, str]) -> dict[str, str]:
    return {f"label {name}": value for name, value in labels.items()}


def _make_slice(field: str, value: str, members: Sequence[TaskResult], yardstick: RoundSettings) -> Slice:
    rewarded = [one for one in members if one.rewards]
    return Slice(
        field=field,
        value=value,
        num_tasks=len(members),
        num_rewards=sum(len(one.rewards) for one in rewarded),
        pass_at_1=_estimate_pass_at(rewarded, 1, yardstick),
        mean_reward=mean(mean(one.rewards) for one in rewarded) if rewarded else None,
    )
