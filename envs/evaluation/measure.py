"""Attempts of a round as the store has them, each read once."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from agent_layer.schema import REFUSED, Outcome, Step, Trajectory, current_rewards
from agent_layer.store import Store, TrajectoryRow
from envs.costs import CallCount, count_calls
from envs.evaluation.figures.figures import Exclusion, MeasuredAttempt
from envs.evaluation.prices import Prices
from envs.grading import JUDGED, judge_run

_COST_REFUSED = f"{REFUSED}: cost_limit"
"""Finding of an attempt that the limit of cost cut short, whatever its agent made of that."""


class AttemptReader:
    """Measures the attempts of one run. What has ended and counts is read once, the rest again.

    Args:
        store: has the trajectories.
        run: of the round.
        prices: of models.
        only_version: an attempt with tokens of another policy version does not count; None: each counts.
        replaced: groups whose attempts do not count.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        prices: Prices,
        only_version: int | None = None,
        replaced: Collection[str] = frozenset(),
    ) -> None:
        self._store = store
        self._run = run
        self._prices = prices
        self._only_version = only_version
        self._replaced = replaced
        self._known: dict[tuple[str, float | None], MeasuredAttempt] = {}
        """By id and reward, which a later judgement changes."""
        self._judges: dict[str, dict[str, MeasuredAttempt]] = {}
        """By the judged trajectory, then by the judge's own."""

    def read(self) -> list[MeasuredAttempt]:
        """Return all attempts that have ended, oldest first, each with what its judges took.

        Raises: UnreachableError: Redis or the objects do not answer. CorruptRecordError: stored bytes are damaged.
        """
        rows = [row for row in self._store.scan(run=self._run) if row.status is not None]
        unread = [row for row in rows if (row.trajectory_id, row.reward) not in self._known]
        measured = dict(self._known)
        for row, trajectory in self._store.read(unread, contents=False):
            attempt = measure_attempt(row, trajectory, self._prices)
            excluded = self._exclude(row, trajectory.outcome)
            measured[row.trajectory_id, row.reward] = msgspec.structs.replace(attempt, excluded=excluded)
        self._known = {key: one for key, one in measured.items() if one.is_accepted}
        self._read_judges()
        attempts = [measured[key] for row in rows if (key := (row.trajectory_id, row.reward)) in measured]
        return [_add_judges(one, self._judges.get(one.trajectory_id, {}).values()) for one in attempts]

    def _exclude(self, row: TrajectoryRow, outcome: Outcome | None) -> Exclusion | None:
        if (row.rollout_id or "").rpartition(".")[0] in self._replaced:
            return "changed"
        if _COST_REFUSED in (outcome.findings if outcome is not None else ()):
            return "cost"
        is_of_version = self._only_version is None or {row.policy_min, row.policy_max} <= {self._only_version, None}
        return None if is_of_version else "version"

    def _read_judges(self) -> None:
        known = {judge_id for judges in self._judges.values() for judge_id in judges}
        rows = [row for row in self._store.scan(run=judge_run(self._run)) if row.status is not None]
        unread = [row for row in rows if row.trajectory_id not in known]
        for row, trajectory in self._store.read(unread, contents=False):
            judged = trajectory.started.labels.get(JUDGED, "") if trajectory.started is not None else ""
            judge = measure_attempt(row, trajectory, self._prices)
            self._judges.setdefault(judged, {})[row.trajectory_id] = judge


def _add_judges(attempt: MeasuredAttempt, judges: Iterable[MeasuredAttempt]) -> MeasuredAttempt:
    """Add what judges took of an attempt to its cost; its calls and tokens stay those of its agent."""
    for judge in judges:
        attempt = msgspec.structs.replace(
            attempt,
            cost=attempt.cost + judge.cost,
            num_uncounted=attempt.num_uncounted + judge.num_uncounted,
            unpriced=sorted({*attempt.unpriced, *judge.unpriced}),
        )
    return attempt


def measure_attempt(row: TrajectoryRow, trajectory: Trajectory, prices: Prices) -> MeasuredAttempt:
    """Measure one attempt.

    Args:
        row: what the index knows; its reward and acceptance count.
        trajectory: without contents.
        prices: of models.
    """
    started, outcome = trajectory.started, trajectory.outcome
    spent = _Spending(prices)
    for call in count_calls(trajectory.steps):
        spent.add(call)
    return MeasuredAttempt(
        trajectory_id=row.trajectory_id,
        rollout_id=row.rollout_id or row.trajectory_id,
        task_id=row.task_id or "",
        is_accepted=row.accepted,
        status=row.status or "lost",
        cause=row.cause,
        reward=row.reward,
        error=_explain(outcome, trajectory.steps),
        is_tampered=any(reward.status == "tampering" for reward in current_rewards(trajectory.rewards)),
        num_calls=spent.num_calls,
        prompt_tokens=spent.prompt_tokens,
        response_tokens=spent.response_tokens,
        num_uncounted=spent.num_uncounted,
        cost=spent.cost,
        unpriced=sorted(spent.unpriced),
        seconds=outcome.ended_at - started.started_at if started is not None and outcome is not None else None,
    )


def _explain(outcome: Outcome | None, steps: Sequence[Step]) -> str | None:
    """Return why an attempt failed, with why its last model call did: its agent may have seen a status alone."""
    error = outcome.error if outcome is not None else None
    called = steps[-1].error if steps and steps[-1].status == "error" else None
    if error is None or called is None or called in error:
        return error
    return f"{error}; its last model call: {called}"


class _Spending:
    """Tokens and cost of an attempt's calls."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.num_calls = self.prompt_tokens = self.response_tokens = self.num_uncounted = 0
        self.cost = 0.0
        self.unpriced: set[str] = set()

    def add(self, call: CallCount) -> None:
        """Add one call."""
        is_policy = call.role == "policy"
        self.num_calls += is_policy and call.is_answered
        if not call.is_answered:
            return  # refused: nothing was sampled
        if call.prompt_tokens is None or call.response_tokens is None:
            self.num_uncounted += call.is_whole
            return
        num_prompt, num_response = call.prompt_tokens, call.response_tokens
        if is_policy:
            self.prompt_tokens += num_prompt
            self.response_tokens += num_response
        price = self._prices.find(call.model, is_policy=is_policy)
        if price is not None:
            self.cost += price.cost(num_prompt, num_response)
        elif call.model is not None:
            self.unpriced.add(call.model)
