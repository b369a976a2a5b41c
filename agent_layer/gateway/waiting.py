"""This file holds the wait for what nothing announces: files that another process takes away."""

import asyncio
from collections.abc import Callable

__all__ = ["wait_until"]

_POLL_SECONDS = 0.02


async def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; False when it does not within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # the condition lies in the file system, no event tells of it
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True
