"""Admission of calls to engines: in the order in which they came, each to an engine that has room for it.

Without a limit an engine gets every call, and queues what does not fit into its cache. With ``adaptive_concurrency``
the gateway keeps calls back instead, by the part of the cache that the engine reports in use: prompts that are thrown
out of a full cache are computed again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from agent_layer.engines import Engine
from agent_layer.errors import EngineError
from agent_layer.gateway.engines.rotation import Rotation

_FEW, _HOLD, _SHED = 0.6, 0.8, 0.9
"""Parts of the cache in use: below the first a limit grows quickly, from the second on not at all, from the third on it
falls."""
_KEPT_SHARE: Final = 0.8
"""Share of the calls in flight that a shedding engine keeps; those beyond it end, and no others take their place."""


def adapt_limit(limit: int | None, in_flight: int, cache_usage: float) -> int | None:
    """Return how many calls an engine gets at a time, one reading of its cache after another.

    Args:
        limit: until now; None: any number.
        in_flight: calls that it has from here.
        cache_usage: part of its cache in use, 0 to 1.
    """
    if cache_usage >= _SHED:
        fewer = max(1, int(in_flight * _KEPT_SHARE))
        return fewer if limit is None else min(limit, fewer)
    if cache_usage >= _HOLD:
        as_many = max(1, in_flight)
        return as_many if limit is None else min(limit, as_many)
    if limit is None or in_flight < limit:
        return limit
    return limit + (max(1, limit // 10) if cache_usage < _FEW else 1)


class Admission:
    """Calls that have a place at an engine, and calls that wait for one.

    Args:
        rotation: chooses the engine.
        is_current: whether what the rotation knows of the registry may be used.
    """

    def __init__(self, rotation: Rotation, is_current: Callable[[], bool]) -> None:
        self._rotation = rotation
        self._is_current = is_current
        self._waiting: dict[asyncio.Future[Engine], tuple[str, str | None, frozenset[str]]] = {}
        """Run, kept engine and excluded engines by call, in the order in which they came."""

    @property
    def num_waiting(self) -> int:
        """Calls that wait for an engine."""
        return len(self._waiting)

    async def acquire(
        self, run: str, kept: str | None, seconds: float, without: frozenset[str] = frozenset()
    ) -> Engine:
        """Take a place at an engine. ``release`` must follow.

        Args:
            run: of the rollout that calls.
            kept: address of the engine that answered the rollout before; None: none did.
            seconds: longest wait.
            without: addresses of engines that shall not answer.

        Raises: EngineError: none had a place within this time.
        """
        if not self._waiting and (engine := self._place(run, kept, without)):
            return engine
        place: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self._waiting[place] = run, kept, without
        self.admit()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await place
        except TimeoutError:
            self._give_up(place)
            raise EngineError(self._rotation.explain_none(run, seconds)) from None
        except asyncio.CancelledError:
            self._give_up(place)
            raise

    def release(self, engine: Engine) -> None:
        """Free a place."""
        load = self._rotation.get_load(engine.url)
        load.in_flight -= 1
        if load.limit is not None:
            self.admit()

    def admit(self) -> None:
        """Assign places to calls that wait, the oldest first; to be called when engines changed."""
        full: set[str] = set()
        for place, (run, kept, without) in list(self._waiting.items()):
            if run in full or place.cancelled():  # its caller left, and ``acquire`` forgets it in a moment
                continue
            if engine := self._place(run, kept, without):
                del self._waiting[place]
                place.set_result(engine)
            elif not without:
                full.add(run)

    def _place(self, run: str, kept: str | None, without: frozenset[str]) -> Engine | None:
        engine = self._rotation.choose(run, kept, without) if self._is_current() else None
        if engine:
            self._rotation.get_load(engine.url).in_flight += 1
        return engine

    def _give_up(self, place: asyncio.Future[Engine]) -> None:
        """Forget a call that waits no more; it may have been given a place in the same moment."""
        self._waiting.pop(place, None)
        if place.done() and not place.cancelled():
            self.release(place.result())
