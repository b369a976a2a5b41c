"""This file holds how engines are asked, again and again, whether they are well and how busy they are."""

import asyncio

from aiohttp import ClientError, ClientSession, ClientTimeout

from agent_layer.gateway.engines.metrics import Gauges, read_gauges
from agent_layer.gateway.engines.rotation import Rotation

__all__ = ["check_engines"]


async def check_engines(rotation: Rotation, poll_seconds: float, answer_seconds: float) -> None:
    """Ask until cancelled. Where there is one engine only, there is nothing to choose and nothing is asked."""
    async with ClientSession(timeout=ClientTimeout(total=answer_seconds)) as session:
        while True:
            urls = [engine.url for engine in rotation.engines]
            if len(urls) > 1:
                async with asyncio.TaskGroup() as asking:
                    for url in urls:
                        asking.create_task(_check(session, url, rotation))
            await asyncio.sleep(poll_seconds)


async def _check(session: ClientSession, url: str, rotation: Rotation) -> None:
    try:
        async with session.get(f"{url}/health", allow_redirects=False) as reply:
            is_well = reply.status == 200
        if is_well:
            rotation.note_answer(url, await _gauges_of(session, url))
        else:
            rotation.note_failure(url)
    except (ClientError, TimeoutError):
        rotation.note_miss(url)


async def _gauges_of(session: ClientSession, url: str) -> Gauges | None:
    async with session.get(f"{url}/metrics", allow_redirects=False) as reply:
        return read_gauges(await reply.text(errors="replace")) if reply.status == 200 else None
