"""Exponential back-off: how long to wait before a failed operation is tried again."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_DOUBLINGS = 16
"""Bounds the power; every ``max_seconds`` is reached before."""


@dataclass(frozen=True)
class Backoff:
    """Delays that double with each failure in a row, up to a longest one."""

    first_seconds: float
    max_seconds: float

    def delay_seconds(self, num_failures: int) -> float:
        """Return the delay before the next try; 0 when the last try did not fail."""
        if num_failures == 0:
            return 0.0
        return min(self.first_seconds * 2 ** min(num_failures - 1, _MAX_DOUBLINGS), self.max_seconds)

    def delays(self, limit_seconds: float) -> Iterator[float]:
        """Yield the delay before each next try, each shortened by up to a half at random, until the limit is over.

        The limit counts from the first ``next()`` on.
        """
        deadline, num_failures = time.monotonic() + limit_seconds, 1
        while (left := deadline - time.monotonic()) > 0:
            yield min(left, self.delay_seconds(num_failures) * random.uniform(0.5, 1))
            num_failures += 1
