"""This file holds the gateway's side of a switch of weights: send to serving engines only, say when none is in flight.

The gateway may act on what the board said for a little less than ``gateway_seconds``; if Redis is away for longer, or
this process was stopped, calls wait. So a trainer that no longer waits for this gateway need not fear its calls.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.errors import EngineError
from agent_layer.gateway.engines.checkup import check_engines
from agent_layer.gateway.engines.cuts import Cuts
from agent_layer.gateway.engines.rotation import Rotation
from agent_layer.settings import Settings
from agent_layer.store.engines import Engine, EngineBoard
from agent_layer.store.policies import newest_number

__all__ = ["EngineWatch"]

_BEATS = 5
"""How often within ``gateway_seconds`` the gateway shows itself."""
_MARGIN = 0.8
"""Part of ``gateway_seconds`` for which a look at the board is good."""

log = logging.getLogger(__name__)


class EngineWatch:
    """Gives calls their places at engines, as the board allows, and keeps the board told."""

    def __init__(
        self, board: EngineBoard, gateway_id: str, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rotation = Rotation(settings.run, settings.engine_urls, settings.max_staleness)
        self.cuts = Cuts()
        self._board = board
        self._gateway_id = gateway_id
        self._settings = settings
        self._clock = clock
        self._seen_at = float("-inf")
        self._said_idle: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    async def run(self) -> None:
        """Follow the board until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._say_idle())
            limits = self._settings.engine_poll_seconds, self._settings.connect_seconds
            tasks.create_task(check_engines(self.rotation, *limits, self._report_end))

    async def close(self) -> None:
        """Tell the board that this gateway ended."""
        with suppress(RedisError):
            await asyncio.to_thread(self._board.hide_gateway, self._gateway_id)

    async def look(self) -> None:
        """Show this gateway, then read the board: in this order no trainer misses it."""
        began = self._clock()
        engines, newest = await asyncio.to_thread(self._show_and_read)
        self.rotation.update(engines, newest)
        self.cuts.apply(engines)
        self._seen_at = began
        self._changed.set()
        self._changed = asyncio.Event()
        self._drained.set()

    async def take(self, run: str, kept: str | None, seconds: float) -> Engine:
        """Take a place at an engine; give it back with ``give``.

        Args:
            run: of the rollout that calls.
            kept: address of the engine that answered the rollout before; None: none did.
            seconds: longest wait.

        Raises: EngineError: none served within so many seconds.
        """
        deadline = self._clock() + seconds
        while (engine := self._choose(run, kept)) is None:
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                raise EngineError(self.rotation.why_none(run, seconds)) from None
        self.rotation.load_of(engine.url).in_flight += 1
        return engine

    def give(self, engine: Engine) -> None:
        """Give a place back."""
        load = self.rotation.load_of(engine.url)
        load.in_flight -= 1
        if not load.in_flight:
            self._drained.set()

    def fails(self, engine: Engine, run: str) -> bool:
        """Note that an engine failed a call of this run; whether another that is well could answer it."""
        self.rotation.note_failure(engine.url)
        return self.rotation.has_other(engine, run)

    @property
    def engines(self) -> list[Engine]:
        """Engines that may be sent to when they serve."""
        return self.rotation.engines

    def _choose(self, run: str, kept: str | None) -> Engine | None:
        if self._clock() - self._seen_at > _MARGIN * self._board.gateway_seconds:
            return None
        return self.rotation.choose(run, kept)

    def _show_and_read(self) -> tuple[list[Engine], dict[str, int]]:
        self._board.show_gateway(self._gateway_id)
        engines = self._board.engines()
        return engines, self._newest_of({engine.run for engine in engines} if self.rotation.has_limit else set())

    def _newest_of(self, runs: set[str]) -> dict[str, int]:
        found = {run: newest_number(self._board.redis, self._board.keys, run) for run in runs}
        return {run: number for run, number in found.items() if number is not None}

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
            for engine in self.rotation.all_engines:
                if engine.state == "serving" or self.rotation.load_of(engine.url).in_flight:
                    continue
                if self._said_idle.get(engine.url, -1) < engine.epoch:
                    await self._acknowledge(engine)

    async def _report_end(self, url: str) -> None:
        """Nobody listens there: whatever is started there next is not what the board knows."""
        engine = next((engine for engine in self.rotation.engines if engine.url == url), None)
        if engine is None or engine.state != "serving":
            return
        try:
            await asyncio.to_thread(self._board.note_end, engine)
        except RedisError as error:
            log.warning("board unreachable: %s", error)  # it is asked again

    async def _acknowledge(self, engine: Engine) -> None:
        try:
            await asyncio.to_thread(self._board.say_idle, engine.url, self._gateway_id, engine.epoch)
        except RedisError as error:
            log.warning("board unreachable: %s", error)  # the next look wakes this again
        else:
            self._said_idle[engine.url] = engine.epoch
