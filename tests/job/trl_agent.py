"""An agent of two turns in one conversation, whose answers score at random."""

import random

import aiohttp

import tracer
from agent_layer.schema import TaskView


async def play(task: TaskView, rollout: tracer.Rollout) -> float:
    """Ask twice; the second question has the first answer in it."""
    del task
    messages = [{"role": "user", "content": "guess"}]
    headers = {"Authorization": f"Bearer {rollout.api_key}"}
    async with aiohttp.ClientSession(rollout.base_url + "/", headers=headers) as session:
        for word in ("higher", "lower"):
            body = {"model": rollout.model, "messages": messages, "max_tokens": 1}
            async with session.post("chat/completions", json=body) as response:
                answer = (await response.json())["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": word}]
    return random.random()
