"""A count with its noun, and a quantile of a sample."""

from collections.abc import Iterable
from math import ceil


def format_count(num: int, word: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("x") else f"{word}s"
    return f"{num:,} {word if num == 1 else plural}"


def quantile(values: Iterable[float], part: float) -> float | None:
    """Return the smallest value that at least this part (0 to 1) of all does not exceed; None without any."""
    ranked = sorted(values)
    return ranked[max(0, ceil(part * len(ranked)) - 1)] if ranked else None
