"""Durations of the crowd's rollouts: 40 % under 1 s, 10 % over 20 s, the longest 600 s.

Between these points the logarithm is spread evenly. The mean is 20.4 s, and the longest tenth does 84 % of the work.

How many rollouts end in a second follows from Little's law, whatever the order: slots / mean, so 2,000 slots ask for
98 rollouts/s. With one call under 1 s, two under 20 s and three above that is 167 calls/s. A rollout costs about 8 ms
of CPU in all processes together (measured, see ``ms CPU``), so that the crowd takes 0.8 of a core. A lighter tail costs
more, not less: with 100 s at the longest the mean would be 8.3 s, and 2,000 slots would ask for 241 rollouts/s.
"""

import math
import random
from itertools import pairwise

__all__ = ["MAX_SECONDS", "draw_durations", "draw_rests", "mean_seconds"]

MAX_SECONDS = 600.0
_POINTS = ((0.0, 0.1), (0.4, 1.0), (0.9, 20.0))
"""(share of rollouts that are shorter, seconds); the last point is the longest."""


def mean_seconds(longest: float = MAX_SECONDS) -> float:
    """Return the mean of the distribution, which is log-uniform between two neighbouring points."""
    points = [*_POINTS, (1.0, longest)]
    return sum((high[0] - low[0]) * (high[1] - low[1]) / math.log(high[1] / low[1]) for low, high in pairwise(points))


def draw_durations(num: int, seed: int, longest: float = MAX_SECONDS) -> list[float]:
    """Return durations in seconds, in random order. The shares are exact, so every draw has the same mix."""
    found = [_quantile((number + 0.5) / num, longest) for number in range(num)]
    random.Random(seed).shuffle(found)
    return found


def draw_rests(num: int, seed: int, longest: float = MAX_SECONDS) -> list[float]:
    """Return the remaining seconds of rollouts that are observed at a random moment.

    A crowd that begins with these is in the middle of its life: the same number ends in any second. Begun afresh, 40 %
    of it would end within the first second. Who is met is long in proportion to its length, and met anywhere in it (the
    inspection paradox; Feller, An Introduction to Probability Theory, vol. 2, XI.4).
    """
    chance = random.Random(seed)
    met = chance.choices(whole := draw_durations(100 * num, seed, longest), weights=whole, k=num)
    return [chance.random() * one for one in met]


def _quantile(share: float, longest: float) -> float:
    points = [*_POINTS, (1.0, longest)]
    low, high = next((low, high) for low, high in pairwise(points) if share <= high[0])
    return low[1] * (high[1] / low[1]) ** ((share - low[0]) / (high[0] - low[0]))
