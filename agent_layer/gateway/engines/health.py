"""Health checks: polls every engine for its health and its load."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout

from agent_layer.engines import KINDS, Engine
from agent_layer.gateway.engines.metrics import Gauges, read_gauges
from agent_layer.gateway.engines.rotation import Rotation

Report: TypeAlias = Callable[[str], Awaitable[None]]


async def check_engines(
    rotation: Rotation,
    poll_seconds: float,
    answer_seconds: float,
    report_end: Report,
    report_round: Callable[[], None] = lambda: None,
) -> None:
    """Poll until cancelled.

    Args:
        rotation: its engines are polled, and it records the results.
        poll_seconds: between two rounds.
        answer_seconds: longest wait for an answer.
        report_end: receives the address of an engine where no server listens.
        report_round: called when all engines have been polled.
    """
    async with ClientSession(timeout=ClientTimeout(total=answer_seconds)) as session:
        while True:
            async with asyncio.TaskGroup() as asking:
                for engine in rotation.engines:
                    asking.create_task(_check(session, engine, rotation, report_end))
            report_round()
            await asyncio.sleep(poll_seconds)


async def _check(session: ClientSession, engine: Engine, rotation: Rotation, report_end: Report) -> None:
    url = engine.url
    try:
        headers, health = rotation.make_headers(url), f"{url}{KINDS[engine.kind].health_path}"
        async with session.get(health, headers=headers, allow_redirects=False) as reply:
            is_well = reply.status == 200
        if is_well:
            rotation.record_success(url, await _read_gauges(session, url, headers))
        else:
            rotation.record_failure(url)
    except ClientConnectorError as error:
        rotation.record_failure(url)
        if isinstance(error.os_error, ConnectionRefusedError):
            await report_end(url)
    except (ClientError, TimeoutError):
        rotation.record_miss(url)


async def _read_gauges(session: ClientSession, url: str, headers: Mapping[str, str]) -> Gauges | None:
    async with session.get(f"{url}/metrics", headers=headers, allow_redirects=False) as reply:
        return read_gauges(await reply.text(errors="replace")) if reply.status == 200 else None
