"""OpenEnv's own client over recorded actions: the sum of the rewards, as its training loops add them.

python openenv_runner.py URL FILE     with [{"reset": {...}, "actions": [...]}]      prints [sum]
"""

import asyncio
import json
import sys
from pathlib import Path

from openenv import GenericEnvClient


async def play(episode):
    total = 0.0
    async with GenericEnvClient(base_url=sys.argv[1]) as client:
        result = await client.reset(**episode["reset"])
        for action in episode["actions"]:
            if result.done:
                break
            result = await client.step(action)
            total += result.reward or 0.0
    return total


async def main():
    print(json.dumps([await play(episode) for episode in json.loads(Path(sys.argv[-1]).read_text())]))


asyncio.run(main())
