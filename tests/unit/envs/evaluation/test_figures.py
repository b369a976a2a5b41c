"""What counts in the figures of a round, and what does not."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.infra import mean
from envs.evaluation import RoundSettings
from envs.evaluation.figures.comparison import compare_results
from envs.evaluation.figures.figures import Figures, MeasuredAttempt, TaskRef, TaskResult, compute_figures

YARDSTICK = RoundSettings(n=2, threshold=1.0, seed=0)


def task(name, **fields):
    return TaskRef(id=name, input_hash=f"hash of {name}", **fields)


def attempt(rollout, reward, *, task_id="t1", number=0, accepted=True, status="completed", **fields):
    return MeasuredAttempt(
        trajectory_id=f"{rollout}-{number}",
        rollout_id=rollout,
        task_id=task_id,
        is_accepted=accepted,
        status=status,
        cause=fields.pop("cause", None),
        reward=reward,
        num_calls=1,
        **fields,
    )


def results(**rewards):
    return [TaskResult(id=name, input_hash=f"hash of {name}", rewards=given) for name, given in rewards.items()]


def test_a_null_is_missing_and_never_zero():
    attempts = [attempt("r0", 1.0), attempt("r1", None, cause="verifier")]

    figures, (result,) = compute_figures([task("t1")], attempts, YARDSTICK)

    assert result.rewards == [1.0]
    assert (figures.num_rewards, figures.num_asked, figures.is_complete) == (1, 2, False)
    assert figures.pass_at_1.value == figures.mean_reward.value == 1.0
    assert figures.causes == {"verifier": 1}


def test_a_rollout_counts_once_and_a_task_never_more_than_n_times():
    attempts = [
        attempt("r0", None, accepted=False, status="lost", cause="infra"),
        attempt("r0", 1.0, number=1),
        attempt("r0", 1.0, number=1),
        attempt("r1", 0.0),
        attempt("r2", 0.0),
    ]

    figures, (result,) = compute_figures([task("t1")], attempts, YARDSTICK)

    assert result.rewards == [1.0, 0.0]
    assert figures.is_complete
    assert figures.causes == {"infra": 1}


def test_failures_that_have_a_reward_are_counted_by_name():
    attempts = [
        attempt("r0", 0.0, status="truncated", cause="policy"),
        attempt("r1", 0.0, is_tampered=True),
        attempt("r2", None, accepted=False),  # its acceptance is on its way
    ]

    figures, _ = compute_figures([task("t1")], attempts, YARDSTICK)

    assert figures.is_complete
    assert figures.causes == {"truncated": 1, "tampering": 1}


def test_pass_at_k_is_taken_over_tasks_that_have_k_rewards():
    attempts = [attempt("a0", 1.0), attempt("a1", 0.0), attempt("b0", 0.0, task_id="t2")]

    figures, _ = compute_figures([task("t1"), task("t2")], attempts, YARDSTICK)

    found = [(one.k, one.num_tasks, one.estimate.value) for one in figures.pass_at]
    assert found == [(1, 2, 0.25), (2, 1, 1.0)]


def test_there_is_a_row_for_each_value_of_a_label():
    tasks = [task("t1", labels={"level": "0", "same": "x"}), task("t2", labels={"level": "1", "same": "x"})]
    attempts = [attempt("a0", 1.0), attempt("b0", 0.0, task_id="t2")]

    figures, _ = compute_figures(tasks, attempts, YARDSTICK)

    assert [(one.field, one.value, one.pass_at_1.value) for one in figures.slices] == [
        ("label level", "0", 1.0),
        ("label level", "1", 0.0),
    ]


def test_rollouts_without_a_call_are_counted_unless_their_task_allows_it():
    attempts = [
        MeasuredAttempt(
            trajectory_id=f"{name}-0",
            rollout_id=name,
            task_id=name,
            is_accepted=True,
            status="completed",
            cause=None,
            reward=1.0,
        )
        for name in ("t1", "t2")
    ]

    figures, _ = compute_figures([task("t1"), task("t2", calls_optional=True)], attempts, YARDSTICK)

    assert figures.num_without_call == 1


def test_rounds_are_compared_by_what_their_tasks_ask():
    before = [*results(a=[1.0, 1.0], b=[0.0, 1.0], c=[0.0, 0.0], gone=[1.0], null=[])]
    after = [
        TaskResult(id="renamed", input_hash="hash of a", rewards=[0.0, 0.0]),
        *results(b=[1.0, 1.0], c=[0.0, 0.0], new=[1.0], null=[1.0]),
    ]

    comparison = compare_results(after, before, YARDSTICK)

    assert (comparison.num_wins, comparison.num_losses, comparison.num_ties) == (1, 1, 1)
    assert (comparison.num_pairs, comparison.num_only_here, comparison.num_only_there) == (3, 2, 1)
    assert (comparison.before, comparison.after) == (0.5, pytest.approx(1 / 3))
    assert comparison.difference.value == pytest.approx(-1 / 6)
    assert [(one.id, one.before, one.after) for one in comparison.worse] == [("renamed", 1.0, 0.0)]


def test_tasks_that_ask_the_same_are_paired_in_order():
    same = [TaskResult(id=name, input_hash="h", rewards=[reward]) for name, reward in (("x", 1.0), ("y", 0.0))]

    comparison = compare_results(same, same, YARDSTICK)

    assert (comparison.num_pairs, comparison.num_ties) == (2, 2)


@pytest.mark.parametrize(
    ("after", "max_drop", "is_regression"),
    [
        ({"a": [0.0], "b": [0.0]}, None, True),
        ({"a": [0.0], "b": [1.0]}, None, False),  # one of two tasks proves nothing
        ({"a": [0.0], "b": [1.0]}, 0.4, True),
        ({"a": [0.0], "b": [1.0]}, 0.5, False),
        ({"a": [1.0], "b": [1.0]}, 0.0, False),
    ],
)
def test_a_regression_is_beyond_doubt_or_beyond_what_is_allowed(after, max_drop, is_regression):
    comparison = compare_results(results(**after), results(a=[1.0], b=[1.0]), YARDSTICK)

    assert comparison.is_regression(max_drop) == is_regression


def test_a_single_task_is_compared_by_its_rollouts():
    few = compare_results(results(a=[0.0]), results(a=[1.0]), YARDSTICK)
    many = compare_results(results(a=[0.0] * 8), results(a=[1.0] * 8), YARDSTICK)

    assert not few.is_regression(None)
    assert many.is_regression(None)


def test_rounds_without_a_common_task_cannot_be_compared():
    assert compare_results(results(a=[1.0]), results(b=[1.0]), YARDSTICK) is None


HUGE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [1.7976931348623157e308, -1e308, 1e308, 5e-324]
)


@given(st.lists(HUGE, min_size=1, max_size=40))
def test_the_mean_of_finite_numbers_is_finite_and_right(numbers):
    exact = sum(map(Fraction, numbers)) / len(numbers)

    assert mean(numbers) == pytest.approx(float(exact), rel=1e-12, abs=1e-300)


@given(st.lists(st.lists(HUGE, min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_round_with_huge_rewards_stays_readable(rewards):
    tasks = [task(f"t{at}", labels={"at": str(at)}) for at in range(len(rewards))]
    attempts = [
        attempt(f"t{at}.{number}", reward, task_id=f"t{at}")
        for at, own in enumerate(rewards)
        for number, reward in enumerate(own)
    ]

    figures, found = compute_figures(tasks, attempts, YARDSTICK)

    assert msgspec.json.decode(msgspec.json.encode(figures), type=Figures) == figures
    assert [one.rewards for one in found] == rewards
