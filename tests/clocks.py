"""Clock that tests step instead of waiting for it."""

from collections.abc import Callable

__all__ = ["SteppedClock"]


class SteppedClock:
    """Seconds that pass when a test says so.

    Args: base: seconds that pass by themselves; by default none do.
    """

    def __init__(self, base: Callable[[], float] = lambda: 0.0) -> None:
        self._base = base
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._base() + self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
