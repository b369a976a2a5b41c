"""Tasks that wait for Redis end when they are cancelled."""

import asyncio
from contextlib import suppress

import redis.asyncio

from agent_layer.infra import open_async_redis


async def test_a_cancellation_that_redis_py_loses_ends_its_task(settings, monkeypatch):
    """As ``asyncio.wait_for`` of Python 3.11 does with one that meets its end."""
    began = asyncio.Event()

    async def lose(*_, **__):
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with await asyncio.to_thread(open_async_redis, settings) as connection:
        monkeypatch.setattr(redis.asyncio.Redis, "execute_command", lose)
        asking = asyncio.create_task(connection.xrevrange("events", count=1))
        await began.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        monkeypatch.undo()
        assert await connection.ping(), "the connection serves others"
