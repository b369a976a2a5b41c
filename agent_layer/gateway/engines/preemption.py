"""This file holds how calls in flight are cut short when their engine is about to get other weights."""

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from agent_layer.engines import Engine

T = TypeVar("T")


class PreemptedError(Exception):
    """What was waited for is no longer wanted."""


class Cut:
    """What may end one request early."""

    def __init__(self) -> None:
        self.is_asked = False
        """The engine is to be left as soon as that is allowed."""
        self.is_allowed = True
        """The request may end right now."""
        self._scope: asyncio.Timeout | None = None

    async def unless(self, coming: Awaitable[T]) -> T:
        """Wait for something.

        Raises: PreemptedError: it was cut.
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

    def ask(self) -> None:
        """End it now if that is allowed; whoever waits must look at ``is_asked`` otherwise."""
        if self._scope and self.is_allowed and not self.is_asked:
            self._scope.reschedule(asyncio.get_running_loop().time())
        self.is_asked = True


class Preemptions:
    """The requests that may be cut, by engine."""

    def __init__(self) -> None:
        self._running: dict[str, set[Cut]] = {}

    @contextmanager
    def watch(self, url: str) -> Generator[Cut]:
        """Inside the block, the engine's leaving the service asks for a cut."""
        cut = Cut()
        running = self._running.setdefault(url, set())
        running.add(cut)
        try:
            yield cut
        finally:
            running.discard(cut)

    def apply(self, engines: Iterable[Engine]) -> None:
        """Cut what runs at engines that no longer serve."""
        for engine in engines:
            if engine.state != "serving":
                for cut in self._running.get(engine.url, ()):
                    cut.ask()
