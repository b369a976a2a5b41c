"""OpenAI's client of the third generation, which speaks through another HTTP library, needs no change either."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from ....waiting import run

PROGRAM = Path(__file__).with_name("openai3_program.py")
OPENAI_3 = Path(sys.prefix, "openai3")


@pytest.fixture
def environment():
    assert OPENAI_3.is_dir(), f"openai 3: expected it in {OPENAI_3}, found nothing; 'make setup' installs it"
    return {**os.environ, "PYTHONPATH": str(OPENAI_3)}


async def test_it_asks_in_every_way(gateway, environment):
    opened = await gateway.open()

    command = [sys.executable, "-W", "error", PROGRAM, opened["base_url"], opened["api_key"]]
    ran = await asyncio.to_thread(run, command, 100, env=environment)

    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["version"].startswith("3.")
    assert answer["texts"] == ["you said: hi"] * 5
    assert "this key is not the rollout's" in answer["refused"]
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [(step.status, step.capture_level) for step in steps] == [("ok", "tokens")] * 5
