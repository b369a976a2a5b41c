"""Curriculum: every task gets its minimum, hard ones get more, and none is lost."""

import itertools

import pytest
from hypothesis import given, strategies as st

from trainer_adapter.loop.feed import update_rates
from trainer_adapter.selection import SuccessShare, VarianceShare

rates = st.lists(st.floats(0, 1), min_size=1, max_size=12)
minimums = st.integers(2, 4)


@given(st.integers(0, 300), rates, st.floats(0.01, 2), minimums, st.sampled_from([SuccessShare, VarianceShare]))
def test_a_submission_is_shared_out_completely(num_rollouts, rates, floor, minimum, part):
    shares = part(floor=floor, minimum=minimum).share(num_rollouts, rates)

    assert len(shares) == len(rates)
    assert min(shares) >= minimum
    assert sum(shares) == max(num_rollouts, minimum * len(rates))


@given(rates, st.floats(0.01, 2))
def test_a_task_that_fails_more_never_gets_fewer(rates, floor):
    shares = SuccessShare(floor=floor).share(10 * len(rates), rates)
    by_rate = sorted(zip(rates, shares, strict=True), reverse=True)

    assert all(harder >= easier - 1 for (_, easier), (_, harder) in itertools.pairwise(by_rate))


def test_the_shares_of_four_tasks_by_hand():
    rates = [0.0, 0.5, 0.8, 1.0]

    # weights 1.3, 0.8, 0.5, 0.3 of 2.9
    assert SuccessShare(floor=0.3).share(29, rates) == [13, 8, 5, 3]
    # weights 0.1, 0.6, 0.5, 0.1 of 1.3
    assert VarianceShare(floor=0.1, minimum=2).share(26, rates) == [2, 12, 10, 2]


def test_equal_tasks_share_equally():
    assert SuccessShare(floor=0.5).share(60, [0.5] * 6) == [10] * 6


def test_rates_move_towards_what_was_seen_and_unseen_tasks_keep_theirs():
    moved = update_rates({"a": 1.0, "b": 0.2}, {"a": 0.0, "c": 1.0}, memory=0.7)

    assert moved == pytest.approx({"a": 0.7, "b": 0.2, "c": 0.65})


def test_only_the_newest_rates_are_remembered():
    rates = update_rates({str(number): 0.5 for number in range(100_000)}, {"new": 1.0, "1": 1.0}, memory=0.5)

    assert len(rates) == 100_000
    assert rates["new"] == rates["1"] == 0.75
    assert "0" not in rates
