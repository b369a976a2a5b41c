"""Clock of work that may overlap: the time in which at least one piece of it ran."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class BusyClock:
    """Counts what runs, and the time in which anything did.

    Args:
        clock: returns seconds since any fixed time.
    """

    __slots__ = ("_changed_at", "_clock", "_seconds", "num_running")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._changed_at: float | None = None
        self.num_running = 0

    @contextmanager
    def running(self) -> Generator[None]:
        """Context manager for a piece of work."""
        if self.num_running == 0:
            self._changed_at = self._clock()
        self.num_running += 1
        try:
            yield
        finally:
            if self.num_running == 1:
                self._seconds, self._changed_at = self.busy_seconds, self._clock()
            self.num_running -= 1

    @property
    def busy_seconds(self) -> float:
        """Time in which anything ran, so far."""
        return self._seconds + (self._since_change() if self.num_running else 0.0)

    @property
    def quiet_seconds(self) -> float | None:
        """Time since the last piece ended; 0 while one runs, None: none has begun."""
        return 0.0 if self.num_running else None if self._changed_at is None else self._since_change()

    def _since_change(self) -> float:
        return 0.0 if self._changed_at is None else self._clock() - self._changed_at
