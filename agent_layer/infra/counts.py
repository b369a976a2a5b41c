"""A count with its noun, a number of any size, and mean and quantile of a sample."""

from collections.abc import Iterable
from math import ceil
from statistics import fmean

_LARGE = 1e9
_DOWN, _UP = 2.0**-64, 2.0**64
"""Powers of two change no digit."""


def format_count(num: int, word: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("x") else f"{word}s"
    return f"{num:,} {word if num == 1 else plural}"


def format_number(value: float, sign: str = "") -> str:
    """Return a number with three decimals, or with four digits where it is large; ``sign``: "+" shows that of all."""
    return f"{value:{sign}.3f}" if abs(value) < _LARGE else f"{value:{sign}.3e}"


def mean(values: Iterable[float]) -> float:
    """Return the mean of finite numbers, however large they are: the sum of some is beyond what a float holds.

    Raises: StatisticsError: there are none.
    """
    numbers = list(values)
    try:
        return fmean(numbers)
    except OverflowError:
        return fmean([number * _DOWN for number in numbers]) * _UP


def quantile(values: Iterable[float], part: float) -> float | None:
    """Return the smallest value that at least this part (0 to 1) of all does not exceed; None without any."""
    ranked = sorted(values)
    return ranked[max(0, ceil(part * len(ranked)) - 1)] if ranked else None
