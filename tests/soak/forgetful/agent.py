"""The line's agent: a few calls with rests between them; its reward follows from its rollout's id."""

import asyncio
from zlib import crc32

import httpx


async def agent(_task, rollout):
    dice = crc32(rollout.rollout_id.encode())
    messages = []
    async with httpx.AsyncClient(base_url=rollout.base_url, timeout=None) as client:
        for turn in range(1 + dice % 3):
            messages.append({"role": "user", "content": f"{rollout.trajectory_id} turn {turn}"})
            headers = {"Authorization": f"Bearer {rollout.api_key}"}
            body = {"model": "policy", "messages": messages, "max_tokens": 8}
            answer = await client.post("chat/completions", json=body, headers=headers)
            answer.raise_for_status()
            messages.append(answer.json()["choices"][0]["message"])
            await asyncio.sleep(dice % 7 / 20)
    return dice % 5 / 4
