"""Preemption: ends requests in flight early when their engine is about to load other weights."""

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from agent_layer.engines import Engine

T = TypeVar("T")


class PreemptedError(Exception):
    """The request was ended early, because its engine leaves the service."""


class Preemption:
    """Cancel scope of one request."""

    def __init__(self) -> None:
        self.is_requested = False
        """The call should leave the engine as soon as that is allowed."""
        self.is_allowed = True
        """The request may end right now."""
        self._scope: asyncio.Timeout | None = None

    async def run(self, coming: Awaitable[T]) -> T:
        """Wait for part of the request.

        Raises: PreemptedError: it was ended meanwhile.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scope = scope
                return await coming
        except TimeoutError:
            if scope.expired():
                raise PreemptedError from None
            raise
        finally:
            self._scope = None

    def request(self) -> None:
        """End the wait now if that is allowed; otherwise the caller of ``run`` must check ``is_requested``."""
        if self._scope and self.is_allowed and not self.is_requested:
            self._scope.reschedule(asyncio.get_running_loop().time())
        self.is_requested = True


class Preemptions:
    """Requests that can be preempted, by engine."""

    def __init__(self) -> None:
        self._running: dict[str, set[Preemption]] = {}

    @contextmanager
    def watch(self, url: str) -> Generator[Preemption]:
        """Inside the block, the engine's leaving the service requests a preemption."""
        preemption = Preemption()
        running = self._running.setdefault(url, set())
        running.add(preemption)
        try:
            yield preemption
        finally:
            running.discard(preemption)

    def apply(self, engines: Iterable[Engine]) -> None:
        """Preempt what runs at engines that no longer serve."""
        for engine in engines:
            if engine.state != "serving":
                for preemption in self._running.get(engine.url, ()):
                    preemption.request()
