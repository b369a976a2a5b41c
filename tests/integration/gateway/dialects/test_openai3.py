"""OpenAI's client of the third generation, which speaks through another HTTP library, needs no change either."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("openai3_program.py")
OPENAI_3 = Path(sys.prefix, "openai3")


@pytest.fixture
def environment():
    assert OPENAI_3.is_dir(), f"openai 3: expected it in {OPENAI_3}, found nothing; 'make setup' installs it"
    return {**os.environ, "PYTHONPATH": str(OPENAI_3)}


async def test_it_asks_in_every_way(gateway, environment):
    opened = await gateway.open()

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(PROGRAM), opened["base_url"], opened["api_key"]),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(100):
        said, _ = await process.communicate()

    told = json.loads(said)
    assert told["version"].startswith("3.")
    assert told["texts"] == ["you said: hi"] * 5
    assert "this key is not the rollout's" in told["refused"]
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [(step.status, step.capture_level) for step in steps] == [("ok", "tokens")] * 5
