"""This file holds the progress of an attempt: when its agent was prepared, and when it last gave a sign of life.

A start is dear: few attempts start at a time, however many run. It lasts from the opening at the gateway until
the
agent is prepared: its process is there, its environment is reset.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """What is known of an attempt while its agent runs.

    Args:
        on_start: called once, when the agent is prepared.
        clock: seconds, from any beginning.
    """

    def __init__(self, on_start: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_start: Callable[[], None] | None = on_start
        self._clock = clock
        self._sign_at = self._began_at = clock()
        self._waits_since: float | None = None
        self.is_calling = False
        """Whether a model call of it was in flight when the gateway was last asked."""

    @property
    def ran_seconds(self) -> float:
        """Time that it had a place to run in."""
        return (self._clock() if self._waits_since is None else self._waits_since) - self._began_at

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Wait in this block for a process that is to run the agent: that time is not the agent's."""
        self._waits_since = self._clock()
        try:
            yield
        finally:
            self._began_at += self._clock() - self._waits_since
            self._waits_since = None
            self.record_activity()

    @property
    def quiet_seconds(self) -> float:
        """Time since the last sign; none passes while there is no place to run in, for nobody could give one."""
        return 0.0 if self._waits_since is not None else self._clock() - self._sign_at

    def start(self) -> None:
        """The agent is prepared; may be said again."""
        if self._on_start is not None:
            on_start, self._on_start = self._on_start, None
            self.record_activity()
            on_start()

    def record_activity(self, seconds_ago: float = 0.0) -> None:
        """Something of the attempt was recorded."""
        self._sign_at = max(self._sign_at, self._clock() - seconds_ago)


_CURRENT: ContextVar[Progress | None] = ContextVar("envs_progress", default=None)


@contextmanager
def watching(progress: Progress) -> Generator[None]:
    """Let what runs in this block tell of its progress there."""
    token = _CURRENT.set(progress)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_progress() -> Progress:
    """Give the progress of the attempt that this code runs; outside any, one that nobody looks at."""
    return _CURRENT.get() or Progress(lambda: None)


class StartLimiter:
    """Lets so many attempts start at the same time."""

    def __init__(self, num: int) -> None:
        self._free = asyncio.Semaphore(num)

    async def enter(self) -> Progress:
        """Wait for a place, which is held until the agent is prepared."""
        await self._free.acquire()
        return Progress(self._free.release)
