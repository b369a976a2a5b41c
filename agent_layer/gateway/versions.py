"""This file holds the gateway's side of a switch of weights: send to serving engines only, say when none is in flight.

The gateway may act on what the board said for a little less than ``gateway_seconds``; if Redis is away for longer, or
this process was stopped, calls wait. So a trainer that no longer waits for this gateway need not fear its calls.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.errors import EngineError
from agent_layer.store.engines import Engine, EngineBoard

__all__ = ["EngineWatch"]

_BEATS = 5
"""How often within ``gateway_seconds`` the gateway shows itself."""
_MARGIN = 0.8
"""Part of ``gateway_seconds`` for which a look at the board is good."""

log = logging.getLogger(__name__)


class EngineWatch:
    """Which engines serve what right now, and how many calls each has in flight from here."""

    def __init__(
        self, board: EngineBoard, gateway_id: str, urls: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._board = board
        self._gateway_id = gateway_id
        self._urls = urls
        self._clock = clock
        self._engines: dict[str, Engine] = {}
        self._open: list[Engine] = []
        self._seen_at = float("-inf")
        self._in_flight: Counter[str] = Counter()
        self._said_idle: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    async def run(self) -> None:
        """Follow the board until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._say_idle())

    async def close(self) -> None:
        """Tell the board that this gateway ended."""
        with suppress(RedisError):
            await asyncio.to_thread(self._board.hide_gateway, self._gateway_id)

    async def look(self) -> None:
        """Show this gateway, then read the board: in this order no trainer misses it."""
        began = self._clock()
        engines = await asyncio.to_thread(self._show_and_read)
        self._engines = {engine.url: engine for engine in engines}
        self._open = [engine for engine in self.engines if engine.state == "serving"]
        self._seen_at = began
        self._changed.set()
        self._changed = asyncio.Event()
        self._drained.set()

    async def take(self, seconds: float) -> Engine:
        """Take a place at the serving engine that has the fewest calls from here; give it back with ``give``.

        Raises: EngineError: none served within so many seconds.
        """
        deadline = self._clock() + seconds
        while (engine := self._serving()) is None:
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                raise EngineError(self._why_none(seconds)) from None
        self._in_flight[engine.url] += 1
        return engine

    def give(self, engine: Engine) -> None:
        """Give a place back."""
        self._in_flight[engine.url] -= 1
        if not self._in_flight[engine.url]:
            self._drained.set()

    @property
    def engines(self) -> list[Engine]:
        """Engines that may be sent to when they serve."""
        return [engine for engine in self._engines.values() if not self._urls or engine.url in self._urls]

    def _serving(self) -> Engine | None:
        if self._clock() - self._seen_at > _MARGIN * self._board.gateway_seconds:
            return None
        if len(self._open) < 2:
            return self._open[0] if self._open else None
        return min(self._open, key=lambda engine: self._in_flight[engine.url])

    def _why_none(self, seconds: float) -> str:
        states = ", ".join(f"{engine.url} is {engine.state}" for engine in self.engines) or "none is registered"
        return (
            f"gateway: expected an engine to serve within {seconds:.0f} s, but {states}; look at the trainer that was"
            " switching weights, or start an engine"
        )

    def _show_and_read(self) -> list[Engine]:
        self._board.show_gateway(self._gateway_id)
        return self._board.engines()

    async def _follow(self) -> None:
        beat = self._board.gateway_seconds / _BEATS
        after: str | None = None
        while True:
            try:
                if after is None:
                    after = await asyncio.to_thread(self._board.last_event)
                await self.look()
                after = await asyncio.to_thread(self._board.wait_event, after, beat)
            except RedisError as error:
                log.warning("board unreachable: %s", error)
                await asyncio.sleep(beat)

    async def _say_idle(self) -> None:
        while True:
            await self._drained.wait()
            self._drained.clear()
            for engine in list(self._engines.values()):
                if engine.state == "serving" or self._in_flight[engine.url]:
                    continue
                if self._said_idle.get(engine.url, -1) < engine.epoch:
                    await self._acknowledge(engine)

    async def _acknowledge(self, engine: Engine) -> None:
        try:
            await asyncio.to_thread(self._board.say_idle, engine.url, self._gateway_id, engine.epoch)
        except RedisError as error:
            log.warning("board unreachable: %s", error)  # the next look wakes this again
        else:
            self._said_idle[engine.url] = engine.epoch
