"""Wrong clocks. This module is imported before anything else, so that all other code reads them.

Within a process they run too fast or too slow by up to a quarter; what the wall clock shows is hours off, and jumps by
ten minutes there and back.
"""

import random
import time

__all__ = ["WrongClock", "true_time"]

true_time = time.time
_true_monotonic = time.monotonic

_FARTHEST_SECONDS = 8 * 3600.0
_JUMP_SECONDS, _JUMP_EVERY_SECONDS = 600.0, 3.0


class WrongClock:
    """Replaces this process's clocks; ``turn`` sets them again in a process that has just started."""

    def __init__(self) -> None:
        self.turn(random.Random(0))
        time.time, time.time_ns = self.time, lambda: round(self.time() * 1e9)
        time.monotonic, time.monotonic_ns = self.monotonic, lambda: round(self.monotonic() * 1e9)

    def turn(self, chance: random.Random) -> None:
        self._rate = chance.uniform(0.8, 1.25)
        self._offset_seconds = chance.uniform(-_FARTHEST_SECONDS, _FARTHEST_SECONDS)
        self._began, self._boot_seconds = _true_monotonic(), chance.uniform(0, 1e6)

    def time(self) -> float:
        now = true_time()
        return now + self._offset_seconds + _JUMP_SECONDS * (now // _JUMP_EVERY_SECONDS % 2)

    def monotonic(self) -> float:
        return self._boot_seconds + self._rate * (_true_monotonic() - self._began)
