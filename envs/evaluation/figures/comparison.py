"""Two rounds compared task by task. Pure.

Tasks are paired by the hash of their input. The difference of pass@1 is the mean over pairs, with a paired bootstrap
over tasks; one pair alone is compared by its rollouts. Beside it stands an exact sign test over tasks that got better
or worse.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from envs.evaluation.figures.estimates import Estimate, difference_of_shares, estimate_mean, sign_test, wilson_interval
from envs.evaluation.figures.figures import RoundSettings, TaskResult


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of rollouts of one task that passed."""

    id: str
    before: float
    after: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How a round did beside an earlier one."""

    num_pairs: int
    num_only_here: int
    """Tasks that the earlier round does not have, or has no reward of."""
    num_only_there: int
    num_wins: int
    """Tasks with a larger share of passes than before."""
    num_losses: int
    num_ties: int
    before: float
    """pass@1 over the pairs."""
    after: float
    difference: Estimate
    """After minus before."""
    p_value: float
    """P-value of the sign test, two-sided."""
    worse: list[TaskChange]
    """The largest loss first."""

    def is_regression(self, max_drop: float | None) -> bool:
        """Whether pass@1 fell: by more than ``max_drop``; if that is None, so far that the interval is below 0."""
        if max_drop is not None:
            return self.difference.value < -max_drop
        return self.difference.high is not None and self.difference.high < 0


def compare_results(
    after: Sequence[TaskResult], before: Sequence[TaskResult], yardstick: RoundSettings
) -> Comparison | None:
    """Compare the rewards of two rounds; None: they share no task that has rewards in both."""
    ours, theirs = _by_input(after), _by_input(before)
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    threshold = yardstick.threshold
    changes = [
        TaskChange(id=ours[key].id, before=theirs[key].pass_rate(threshold), after=ours[key].pass_rate(threshold))
        for key in shared
    ]
    num_wins = sum(one.after > one.before for one in changes)
    worse = sorted((one for one in changes if one.after < one.before), key=lambda one: (one.after - one.before, one.id))
    if len(shared) == 1:
        difference = difference_of_shares(_share(ours[shared[0]], threshold), _share(theirs[shared[0]], threshold))
    else:
        difference = estimate_mean([one.after - one.before for one in changes], yardstick.seed)
    assert difference is not None
    return Comparison(
        num_pairs=len(shared),
        num_only_here=len(ours) - len(shared),
        num_only_there=len(theirs) - len(shared),
        num_wins=num_wins,
        num_losses=len(worse),
        num_ties=len(shared) - num_wins - len(worse),
        before=sum(one.before for one in changes) / len(changes),
        after=sum(one.after for one in changes) / len(changes),
        difference=difference,
        p_value=sign_test(num_wins, len(worse)),
        worse=worse,
    )


def _by_input(results: Iterable[TaskResult]) -> dict[tuple[str, int], TaskResult]:
    """Return results that have rewards, by input hash and, among tasks that ask the same, by place."""
    found: dict[tuple[str, int], TaskResult] = {}
    nums: defaultdict[str, int] = defaultdict(int)
    for result in sorted(results, key=lambda one: one.id):
        if result.rewards:
            found[result.input_hash, nums[result.input_hash]] = result
        nums[result.input_hash] += 1
    return found


def _share(result: TaskResult, threshold: float) -> Estimate:
    return wilson_interval(len(result.rewards), result.num_passed(threshold))
