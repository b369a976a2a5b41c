"""Waits of tests: they poll a condition, and never sleep for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["until", "wait_until"]

T = TypeVar("T")
_LOOK_SECONDS = 0.005


def wait_until(condition: Callable[[], T], seconds: float = 60.0) -> T:
    """Wait until the condition holds, and give what it gave; the deadline fails the test."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{condition} did not hold within {seconds:g} s"
        time.sleep(_LOOK_SECONDS)
    return found


async def until(condition: Callable[[], T | Awaitable[T]], seconds: float = 60.0) -> T:
    """Like ``wait_until`` without blocking the loop; the condition may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(_LOOK_SECONDS)
