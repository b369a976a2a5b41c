"""The one reader of the store's streams that all pages share; it looks at queue and workers only while a page does."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias, cast

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError
from agent_layer.infra import AsyncRedis, open_async_redis
from agent_layer.view.events.coalesce import Gathered
from agent_layer.view.events.ring import Ring
from agent_layer.view.reads.fleet import show_fleet_state
from agent_layer.view.reads.source import ReadContext

log = logging.getLogger(__name__)

_Entries: TypeAlias = list[tuple[bytes, dict[bytes, bytes]]]

_MAX_ENTRIES: Final = 1_000
_BLOCK_SECONDS: Final = 1.0
_ROUND_SECONDS: Final = 0.5
"""Seconds whose changes become one message of each kind; a page reads again once a second at most."""
_STEADY_SECONDS: Final = 2.0
"""The same while changes go on: a page then reads again every four seconds."""
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1.0


class _Observation(NamedTuple):
    """What no stream tells."""

    fleet: object
    reports: Mapping[str, tuple[int, int]]
    """Run → size and time of change of its file of reports."""


async def watch(source: ReadContext, ring: Ring, is_watched: Callable[[], bool]) -> None:
    """Publish what changes, until cancelled; while Redis is away, wait for it and then ask every page to reload."""
    is_first = True
    while True:
        try:
            async with await asyncio.to_thread(open_async_redis, source.settings) as connection:
                watcher = _Watcher(source, connection, ring)
                await watcher.start()
                if not is_first:
                    ring.lose()
                is_first = False
                ring.fill()
                while True:
                    await watcher.go_round(is_looking=is_watched())
        except (AgentLayerError, RedisError, OSError) as error:
            log.warning("events interrupted error=%s", error)
            is_first = False
        await asyncio.sleep(_RETRY_SECONDS)


class _Watcher:
    def __init__(self, source: ReadContext, connection: AsyncRedis, ring: Ring) -> None:
        keys = source.store.keys
        self._source, self._connection, self._ring = source, connection, ring
        self._events, self._steps = keys.events, keys.steps
        self._fleet = (keys.engine_events, keys.queue("wake"), keys.queue("closed"))
        self._reached: dict[str, bytes] = {}
        self._gathered = Gathered()
        self._look: _Observation | None = None
        self._looked_at = 0.0
        self._published_at = -inf
        self._rest_seconds = _ROUND_SECONDS

    async def start(self) -> None:
        """Begin behind the newest entries."""
        for name in (self._events, self._steps, *self._fleet):
            newest = cast("_Entries", await self._connection.xrevrange(name, count=1))
            self._reached[name] = newest[0][0] if newest else b"0-0"

    async def go_round(self, *, is_looking: bool) -> None:
        """Wait for changes, gather those of a moment, and publish them."""
        await self._read(_BLOCK_SECONDS)
        if is_looking and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            await self._look_again()
        if changes := self._gathered.take():
            self._ring.publish(changes)
            await asyncio.sleep(self._rest())

    def _rest(self) -> float:
        """Return the seconds until the next messages: twice as many as before, while changes go on."""
        now = time.monotonic()
        goes_on = now - self._published_at < 2 * self._rest_seconds + _BLOCK_SECONDS
        self._rest_seconds = min(2 * self._rest_seconds, _STEADY_SECONDS) if goes_on else _ROUND_SECONDS
        self._published_at = now
        return self._rest_seconds

    async def _read(self, block_seconds: float) -> None:
        """Gather all entries that are there; wait for the first."""
        block_ms: int | None = round(block_seconds * 1000)
        num = _MAX_ENTRIES
        while num >= _MAX_ENTRIES:
            found = await self._connection.xread({**self._reached}, count=_MAX_ENTRIES, block=block_ms)
            streams = {name.decode(): entries for name, entries in cast("list[tuple[bytes, _Entries]]", found)}
            num, block_ms = max(map(len, streams.values()), default=0), None
            if num >= _MAX_ENTRIES and await self._has_lost():
                self._ring.lose()
            self._gather(streams)

    async def _has_lost(self) -> bool:
        """Whether entries were trimmed before they were read."""
        oldest = cast("_Entries", await self._connection.xrange(self._events, count=1))
        return bool(oldest) and _order(oldest[0][0]) > _order(self._reached[self._events])

    def _gather(self, streams: Mapping[str, Sequence[tuple[bytes, dict[bytes, bytes]]]]) -> None:
        for name, entries in streams.items():
            self._reached[name] = entries[-1][0]
            if name in self._fleet:
                self._gathered.add("fleet", "")
            for _, fields in entries:
                if name == self._events:
                    self._gathered.add_event(fields)
                elif name == self._steps:
                    self._gathered.add_steps(fields)

    async def _look_again(self) -> None:
        before, self._looked_at = self._look, time.monotonic()
        self._look = now = await asyncio.to_thread(_look_at, self._source)
        if before is None:
            return
        if now.fleet != before.fleet:
            self._gathered.add("fleet", "")
        for run, changed in now.reports.items():
            if before.reports.get(run) != changed:
                self._gathered.add("run", run, run)


def _look_at(source: ReadContext) -> _Observation:
    reports = {
        path.parent.name: (found.st_size, found.st_mtime_ns)
        for path in source.settings.dir.glob("runs/*/progress.jsonl")
        for found in [path.stat()]
    }
    return _Observation(show_fleet_state(source), reports)


def _order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)
