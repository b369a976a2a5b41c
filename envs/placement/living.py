"""This file holds one placed worker as its supervisor knows it, from its start to its end."""

import asyncio
import time

from envs.placement.placed import Placed

__all__ = ["Living"]


class Living:
    """A worker that was placed; it counts as living until ``end`` is done."""

    def __init__(self, worker: Placed) -> None:
        self._worker = worker
        self._placed_at = time.monotonic()
        self._is_told = False
        self.name = worker.name
        self.end = asyncio.create_task(worker.ended())
        """Gives its exit status."""
        self.was_seen = False
        """Whether a heartbeat of it was answered."""

    @property
    def age_seconds(self) -> float:
        """Since it was placed."""
        return time.monotonic() - self._placed_at

    async def is_seen_within(self, seconds: float) -> bool:
        """Wait for its first heartbeat or its end."""
        if self.was_seen:
            return True
        seeing = asyncio.create_task(self._worker.seen())
        await asyncio.wait({seeing, self.end}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self.was_seen = seeing.done() and seeing.exception() is None
        seeing.cancel()
        return self.was_seen

    async def drain(self, *, hurry: bool) -> None:
        """Tell it to end, once; in a hurry, a second time: it gives back at once what it runs."""
        if hurry or not self._is_told:
            self._is_told = True
            await self._worker.drain()

    async def kill(self) -> None:
        """End it although it does not end."""
        await self._worker.kill()
