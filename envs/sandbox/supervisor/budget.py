"""Budgets of memory for what clients send and are answered: who asks for more than is free waits its turn.

An attempt has a budget for requests and one for results; long requests of all attempts share one more. A request waits
for room before its body is read, a result before its call begins. A call holds its request's room while it waits for
that of its result, and never the other way round, so that no two wait for each other.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from envs.channel import MAX_MESSAGE_LENGTH

_SHORT_LENGTH = 1 << 20
_SHORT_BYTES = 4 << 20
"""For an attempt's requests up to that length together."""


class ByteBudget:
    """Bytes that may be in use at the same time, given out in the order in which they were asked for.

    Args:
        num_bytes: all of them; a larger share waits until it has everything.
        shared: budget from which each share is taken too, after this one.
    """

    def __init__(self, num_bytes: int, shared: "ByteBudget | None" = None) -> None:
        self._num_bytes = self._free = num_bytes
        self._shared = shared
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def share(self, num_bytes: int) -> AsyncGenerator[None]:
        """Context manager for a share; nothing waits for nothing."""
        if num_bytes:
            await self.acquire(num_bytes)
        try:
            yield
        finally:
            self.release(num_bytes)

    async def acquire(self, num_bytes: int) -> None:
        """Wait for a share, which ``release`` gives back."""
        self._waiting.append((min(num_bytes, self._num_bytes), asyncio.get_running_loop().create_future()))
        granted = self._waiting[-1][1]
        self._grant()
        try:
            await granted
            if self._shared is not None:
                await self._shared.acquire(num_bytes)
        except BaseException:
            if granted.done() and not granted.cancelled():
                self._give_back(num_bytes)
            else:
                self._waiting = deque(one for one in self._waiting if one[1] is not granted)
                self._grant()
            raise

    def release(self, num_bytes: int) -> None:
        """Return a share, as large as it was asked for."""
        if self._shared is not None:
            self._shared.release(num_bytes)
        self._give_back(num_bytes)

    def _give_back(self, num_bytes: int) -> None:
        self._free += min(num_bytes, self._num_bytes)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            share, granted = self._waiting.popleft()
            if not granted.done():
                self._free -= share
                granted.set_result(None)


class RequestRoom:
    """Room for the requests of one attempt; for short ones it waits for no other attempt.

    Args:
        long: budget of long requests of all attempts.
    """

    def __init__(self, long: ByteBudget) -> None:
        self._short, self._long = ByteBudget(_SHORT_BYTES), ByteBudget(MAX_MESSAGE_LENGTH, long)

    async def acquire(self, num_bytes: int) -> None:
        """Wait for room, which ``release`` gives back."""
        await self._of(num_bytes).acquire(num_bytes)

    def release(self, num_bytes: int) -> None:
        """Return room, as much as was asked for."""
        self._of(num_bytes).release(num_bytes)

    def _of(self, num_bytes: int) -> ByteBudget:  # kept: which one gave it, gets it back
        return self._short if num_bytes <= _SHORT_LENGTH else self._long
