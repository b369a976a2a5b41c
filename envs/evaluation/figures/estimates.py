"""Estimators of an evaluation: pass@k, intervals, an exact sign test. Pure.

Rollouts of one task resemble each other, so the task is the unit: an interval is a bootstrap over tasks (percentiles
of resampled means, with a seed). Where that says nothing, a Wilson interval stands in: one task has only its rollouts,
and values that are all equal have no spread to resample, although a few tasks prove little.
"""

import random
from collections.abc import Sequence
from math import comb, sqrt
from statistics import NormalDist

import msgspec

from agent_layer.infra import mean

_NUM_RESAMPLES = 2_000
_CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over tasks, with its 95 % confidence interval."""

    value: float
    low: float | None = None
    """None: there is too little for an interval."""
    high: float | None = None


def estimate_pass_at_k(num: int, num_passed: int, k: int) -> float:
    """Return the chance that at least one of k rollouts passes, without bias (Chen et al. 2021, eq. 1).

    Args:
        num: rollouts of one task, at least k.
        num_passed: of these.
        k: rollouts that a user would try.
    """
    return 1.0 - comb(num - num_passed, k) / comb(num, k)


def estimate_rate(values: Sequence[float], seed: int) -> Estimate | None:
    """Return the mean of rates of tasks; None without any.

    Args:
        values: [num_tasks], each from 0 to 1.
        seed: of the bootstrap.
    """
    if not values:
        return None
    if len(values) == 1:
        return Estimate(value=values[0])
    if len(set(values)) == 1:
        return wilson_interval(len(values), values[0] * len(values))
    return estimate_mean(values, seed)


def estimate_mean(values: Sequence[float], seed: int) -> Estimate | None:
    """Return the mean of any numbers of tasks; None without any. One alone has no interval."""
    if not values:
        return None
    value = mean(values)
    if len(values) == 1:
        return Estimate(value=value)
    chance, size = random.Random(seed), len(values)
    means = sorted(mean(chance.choices(values, k=size)) for _ in range(_NUM_RESAMPLES))
    tail = round(_NUM_RESAMPLES * (1 - _CONFIDENCE) / 2)
    return Estimate(value=value, low=means[tail], high=means[-tail - 1])


def wilson_interval(num: int, num_passed: float) -> Estimate:
    """Return a share with its Wilson score interval (Wilson 1927), which never has zero width.

    Args:
        num: independent tries, at least 1.
        num_passed: of these; a fraction where tries pass in part.
    """
    share, spread = num_passed / num, _Z * _Z / num
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / num + spread / (4 * num)) / (1 + spread)
    return Estimate(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half))


def difference_of_shares(ours: Estimate, theirs: Estimate) -> Estimate:
    """Return the difference of two independent shares, from their Wilson intervals (Newcombe 1998, method 10)."""
    value = ours.value - theirs.value
    if ours.low is None or ours.high is None or theirs.low is None or theirs.high is None:
        return Estimate(value=value)
    down = sqrt((ours.value - ours.low) ** 2 + (theirs.high - theirs.value) ** 2)
    up = sqrt((ours.high - ours.value) ** 2 + (theirs.value - theirs.low) ** 2)
    return Estimate(value=value, low=value - down, high=value + up)


def sign_test(num_wins: int, num_losses: int) -> float:
    """Return the two-sided p-value of an exact sign test; with one rollout per task it is McNemar's exact test."""
    num, least = num_wins + num_losses, min(num_wins, num_losses)
    return min(1.0, 2 * sum(comb(num, at) for at in range(least + 1)) / 2**num)
