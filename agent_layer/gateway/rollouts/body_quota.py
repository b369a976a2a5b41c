"""Body quota: how many bytes of large requests one rollout holds at once, so that its key cannot fill the memory.

A request is copied on its way: as it came, as it is recorded, as its engine reads it. What exceeds the quota waits, and
is not read from its connection before.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_layer.errors import BackPressureError


@dataclass(slots=True)
class BodyQuota:
    """Bytes that one rollout holds."""

    num_bytes: int = 0
    num_sockets: int = 0
    """Open sockets; each reads one message at a time."""
    _released: asyncio.Event | None = None
    """Set by the next release; None: no request waits for it."""

    @asynccontextmanager
    async def hold(self, num_bytes: int, most: int, wait_seconds: float) -> AsyncGenerator["HeldBytes"]:
        """Hold this many bytes inside the block; more than the quota only alone.

        Raises: BackPressureError: others hold them for ``wait_seconds``.
        """
        try:
            async with asyncio.timeout(wait_seconds):
                while (held := self.try_hold(num_bytes, most)) is None:
                    self._released = self._released or asyncio.Event()
                    await self._released.wait()
        except TimeoutError:
            raise BackPressureError(
                f"gateway: expected room for a request of {num_bytes} bytes, found {self.num_bytes} of {most} bytes"
                f" held by other requests of its rollout for {wait_seconds:g} s; send fewer large requests at once"
            ) from None
        try:
            yield held
        finally:
            held.shrink(0)

    def try_hold(self, num_bytes: int, most: int) -> "HeldBytes | None":
        """Hold this many bytes until they are released, without a wait; None: there is no room."""
        if self.num_bytes and self.num_bytes + num_bytes > most:
            return None
        self.num_bytes += num_bytes
        return HeldBytes(self, num_bytes)

    def release(self, num_bytes: int) -> None:
        """Release bytes, for a request that waits."""
        self.num_bytes -= num_bytes
        if self._released:
            self._released.set()
            self._released = None


@dataclass(slots=True)
class HeldBytes:
    """The part of a quota that one request holds."""

    quota: BodyQuota
    num_bytes: int

    def shrink(self, num_bytes: int) -> None:
        """Hold no more than this: the request is shorter than it might have been, or it is over."""
        surplus = max(0, self.num_bytes - num_bytes)
        self.num_bytes -= surplus
        self.quota.release(surplus)
