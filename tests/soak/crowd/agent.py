"""The crowd's agent: a few real calls, spread over the task's duration, and a note of its start and end.

``input`` of its task: ``{"seconds": [group_size]}``; the rollout's index in the group selects its duration.
It makes one call if it takes less than a second, two below 20 s, else three. ``CROWD_BOOK`` names the file of notes,
lines of ``began|ended TRAJECTORY TIME``.
"""

import asyncio
import os
import time

import aiohttp

_sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
_book = os.open(os.environ["CROWD_BOOK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def agent(task, rollout):
    member = int(rollout.rollout_id.rpartition(".")[2])
    seconds = task.input["seconds"][member]
    num_calls = 1 + (seconds >= 1) + (seconds >= 20)
    _note("began", rollout)
    began = time.monotonic()
    try:
        for number in range(num_calls):
            await _ask(rollout, number)
            await asyncio.sleep(began + seconds * (number + 1) / num_calls - time.monotonic())
    finally:
        _note("ended", rollout)
    return seconds


async def _ask(rollout, number: int) -> None:
    session = _session()
    body = {"model": "policy", "messages": [{"role": "user", "content": f"turn {number}"}], "max_tokens": 8}
    headers = {"Authorization": f"Bearer {rollout.api_key}"}
    async with session.post(f"{rollout.base_url}/chat/completions", json=body, headers=headers) as answer:
        await answer.read()
        answer.raise_for_status()


def _session() -> aiohttp.ClientSession:
    """One for all agents on a loop, never closed: it ends with its process."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        _sessions[loop] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
    return _sessions[loop]


def _note(deed: str, rollout) -> None:
    os.write(_book, f"{deed} {rollout.trajectory_id} {time.time():.3f}\n".encode())
