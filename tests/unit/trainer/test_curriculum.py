"""Curriculum: every task gets its minimum, hard ones get more, and none is lost."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_adapter.loop.feed import allot_rollouts, update_rates

rates = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(st.integers(0, 300), rates, st.floats(0.01, 2), st.integers(1, 4))
def test_a_round_is_shared_out_completely(num_rollouts, rates, floor, minimum):
    shares = allot_rollouts(num_rollouts, rates, floor, minimum)

    assert len(shares) == len(rates)
    assert min(shares) >= minimum
    assert sum(shares) == max(num_rollouts, minimum * len(rates))


@given(rates, st.floats(0.01, 2))
def test_a_task_that_fails_more_never_gets_fewer(rates, floor):
    shares = allot_rollouts(10 * len(rates), rates, floor, minimum=2)
    by_rate = sorted(zip(rates, shares, strict=True), reverse=True)

    assert all(harder >= easier - 1 for (_, easier), (_, harder) in itertools.pairwise(by_rate))


def test_equal_tasks_share_equally():
    assert allot_rollouts(60, [0.5] * 6, floor=0.5, minimum=2) == [10] * 6


def test_rates_move_towards_what_was_seen_and_unseen_tasks_keep_theirs():
    moved = update_rates({"a": 1.0, "b": 0.2}, {"a": 0.0, "c": 1.0}, memory=0.7)

    assert moved == pytest.approx({"a": 0.7, "b": 0.2, "c": 0.65})
