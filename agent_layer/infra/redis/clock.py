"""The shared time of a namespace, by which leases lapse: no wall clock moves it, neither the server's nor a client's.

A server's wall clock may go back or ahead, and Redis offers its scripts no other one. Monotonic clocks cannot jump, but
those of two machines have no common origin. So Redis stores the time, and each process counts on from what it read:

    estimate = stored time, as first read + monotonic seconds of this process since then
    time     = the latest of all estimates and of what is stored

The time passes while any process of the namespace runs, at the rate of real time, also while Redis is away. When none
runs, it stands still, and leases keep what is left of them. It begins as the server's wall clock and is then its own:
compare times of this clock with each other only.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from redis import Redis

from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.scripts import LuaScript

_LUA = Path(__file__).parent / "lua"

CLOCK_PRELUDE = _LUA / "clock.lua"
"""First prelude of scripts that need the time. Their last argument is ``estimate_ms``."""

ADVANCE_CLOCK = LuaScript(
    file=_LUA / "advance.lua", preludes=(CLOCK_PRELUDE,), commands="get set", writes="clock", keys=("clock",)
)


class SharedClock:
    """The time of one namespace. Threads may share it."""

    def __init__(self, redis: Redis, keys: Keys, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._key = keys.clock
        self._monotonic = monotonic
        self._origin_ms: float | None = None
        """What the time was when the monotonic clock was 0; None before the first use."""
        self._advance = ADVANCE_CLOCK.load(redis)

    def estimate_ms(self) -> int:
        """Return this process's estimate in milliseconds, never ahead of the time. Only the first call asks Redis."""
        if self._origin_ms is None:
            self._origin_ms = self._read_stored() - 1000 * self._monotonic()
        return round(self._origin_ms + 1000 * self._monotonic())

    def read(self) -> float:
        """Return the time in seconds, without storing it: for those who may not write."""
        return max(self.estimate_ms(), self._read_stored(0)) / 1000

    def advance(self) -> float:
        """Store the time and return it in seconds."""
        return cast("int", self._advance([self._key], [self.estimate_ms()])) / 1000

    def _read_stored(self, default: int | None = None) -> int:
        if (stored := cast("bytes | None", self._redis.get(self._key))) is not None:
            return int(stored)
        if default is not None:
            return default
        seconds, microseconds = self._redis.time()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        return seconds * 1000 + microseconds // 1000
