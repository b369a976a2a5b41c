"""This file holds how something is waited for, and no longer than a limit."""

import asyncio
from contextlib import suppress

__all__ = ["wait_within"]


async def wait_within(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event; return also when the time is up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
