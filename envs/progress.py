"""Progress of an attempt: when its agent was prepared, and when it last showed activity.

A start is expensive, so few attempts start at a time, however many run. It lasts from the opening at the gateway until
the agent is prepared: its process exists and its environment is reset.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """When an attempt was prepared, how long it ran, and when it last showed activity.

    Args:
        on_prepared: called once, when the agent is prepared.
        clock: returns seconds since any fixed time.
    """

    def __init__(self, on_prepared: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_prepared: Callable[[], None] | None = on_prepared
        self._clock = clock
        self._active_at = self._began_at = clock()
        self._waits_since: float | None = None
        self.is_calling = False
        """Whether a model call was in flight when the gateway last answered."""
        self._waited_seconds, self._waited_at = 0.0, self._began_at

    @property
    def ran_seconds(self) -> float:
        """Time in which the agent had a process."""
        return (self._clock() if self._waits_since is None else self._waits_since) - self._began_at

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Context manager for the wait for the agent's process, which does not count as the agent's time."""
        self._waits_since = self._clock()
        try:
            yield
        finally:
            self._began_at += self._clock() - self._waits_since
            self._waits_since = None
            self.record_activity()

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last activity; 0 while the agent waits for a process."""
        return 0.0 if self._waits_since is not None else self._clock() - self._active_at

    @property
    def waited_seconds(self) -> float:
        """Time in which a model call was in flight, as far as the gateway has said."""
        return self._waited_seconds + (self._clock() - self._waited_at if self.is_calling else 0.0)

    def record_waits(self, seconds: float, *, is_calling: bool) -> None:
        """Note how long model calls have been in flight so far, and whether one is now."""
        self._waited_seconds, self._waited_at, self.is_calling = seconds, self._clock(), is_calling

    def mark_prepared(self) -> None:
        """Note that the agent is prepared; later calls have no effect."""
        if self._on_prepared is not None:
            on_prepared, self._on_prepared = self._on_prepared, None
            self.record_activity()
            on_prepared()

    def record_activity(self, seconds_ago: float = 0.0) -> None:
        """Note that a record of the attempt was written this long ago."""
        self._active_at = max(self._active_at, self._clock() - seconds_ago)


_CURRENT: ContextVar[Progress | None] = ContextVar("envs_progress", default=None)


@contextmanager
def progress_scope(progress: Progress) -> Generator[None]:
    """Context manager in which ``current_progress`` returns this progress."""
    token = _CURRENT.set(progress)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_progress() -> Progress:
    """Return the progress of the attempt that runs this code; outside of attempts, an unused one."""
    return _CURRENT.get() or Progress(lambda: None)


class StartLimiter:
    """Limits how many attempts start at the same time."""

    def __init__(self, num: int) -> None:
        self._free = asyncio.Semaphore(num)

    async def acquire(self) -> Progress:
        """Wait for room to start; it is held until the agent is prepared."""
        await self._free.acquire()
        return Progress(self._free.release)
