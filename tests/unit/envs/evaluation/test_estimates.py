"""Estimators against enumeration and simulation."""

import random
from itertools import combinations
from math import comb

import pytest

from agent_layer.infra import quantile
from envs.evaluation.figures.estimates import (
    Estimate,
    difference_of_shares,
    estimate_mean,
    estimate_pass_at_k,
    estimate_rate,
    sign_test,
    wilson_interval,
)


@pytest.mark.parametrize("num", range(1, 8))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(num):
    for num_passed in range(num + 1):
        rollouts = [True] * num_passed + [False] * (num - num_passed)
        for k in range(1, num + 1):
            chosen = list(combinations(rollouts, k))
            share = sum(any(one) for one in chosen) / len(chosen)

            assert estimate_pass_at_k(num, num_passed, k) == pytest.approx(share)


def test_the_bootstrap_covers_the_true_mean_of_tasks():
    chance = random.Random(7)
    num_covered = 0
    for trial in range(100):
        rates = [sum(chance.random() < skill for _ in range(4)) / 4 for skill in (chance.random() for _ in range(40))]
        estimate = estimate_rate(rates, seed=trial)
        num_covered += estimate.low <= 0.5 <= estimate.high

    assert 89 <= num_covered <= 99


def test_wilson_covers_the_true_share():
    chance = random.Random(3)
    num_covered = 0
    for _ in range(1000):
        estimate = wilson_interval(20, sum(chance.random() < 0.9 for _ in range(20)))
        num_covered += estimate.low <= 0.9 <= estimate.high

    assert 930 <= num_covered <= 985


def test_equal_seeds_give_equal_intervals():
    values = [number * number % 7 for number in range(1, 40)]

    assert estimate_mean(values, 1) == estimate_mean(values, 1)
    assert estimate_mean(values, 1) != estimate_mean(values, 2)


def test_a_few_tasks_that_all_pass_prove_little():
    estimate = estimate_rate([1.0, 1.0, 1.0], seed=0)

    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(0.4385, abs=1e-4)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_too_little_has_no_interval(values):
    expected = Estimate(value=0.5) if values else None

    assert estimate_rate(values, seed=0) == estimate_mean(values, seed=0) == expected


@pytest.mark.parametrize(("num_wins", "num_losses"), [(0, 0), (3, 1), (1, 3), (5, 5), (0, 6), (2, 9)])
def test_the_sign_test_sums_outcomes_that_are_as_unlikely(num_wins, num_losses):
    num = num_wins + num_losses
    least = comb(num, num_wins)
    p_value = sum(comb(num, at) for at in range(num + 1) if comb(num, at) <= least) / 2**num

    assert sign_test(num_wins, num_losses) == pytest.approx(p_value)


def test_the_difference_of_two_shares_is_newcombes():
    difference = difference_of_shares(wilson_interval(70, 56), wilson_interval(80, 48))

    assert difference.value == pytest.approx(0.2)  # Newcombe 1998, table II, first example
    assert (difference.low, difference.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


@pytest.mark.parametrize(("part", "value"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.9, 4), (1.0, 4)])
def test_a_percentile_is_one_of_the_values(part, value):
    assert quantile([4, 2, 1, 3], part) == value
    assert quantile([], part) is None
