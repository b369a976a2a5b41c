"""Attempts that stay idle for longer than their tasks allow."""

import pytest

from agent_layer.schema.task import Limits

IDLE = """
import asyncio
import openai, openai.resources
import tracer

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)

async def ask():
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

async def sleeps(task, rollout):
    await ask()
    await asyncio.sleep(0 if rollout.attempt else 60)
    return 1.0

async def waits(task, rollout):
    if rollout.attempt == 0:
        await ask()
    return 1.0

async def works(task, rollout):
    for number in range(12):
        rollout.reward(float(number), name="progress")
        await asyncio.sleep(0.5)
    return 1.0

async def calls(task, rollout):
    for _ in range(12):
        await ask()
        await asyncio.sleep(0.5)
    return 1.0
"""


@pytest.fixture(autouse=True)
def _module(write_module):
    write_module("idle", IDLE)


async def test_an_agent_that_records_nothing_is_ended_for_its_own_fault(harness, task):
    first, second = await harness.run("idle:sleeps", task(limits=Limits(idle_seconds=4.5)))

    assert (first.outcome.status, first.outcome.cause, second.reward) == ("failed", "user", 1.0)
    assert "idle_seconds (4.5)" in first.outcome.error


async def test_an_agent_whose_call_is_not_answered_is_ended_for_the_infrastructures(harness, task):
    harness.engine.prefill_seconds = harness.engine.token_seconds = 60.0

    first, second = await harness.run("idle:waits", task(limits=Limits(idle_seconds=4.5)))

    assert (first.outcome.status, first.outcome.cause, second.reward) == ("lost", "infra", 1.0)
    assert "in flight" in first.outcome.error


@pytest.mark.parametrize("agent", ["works", "calls"])
async def test_an_agent_that_records_or_calls_now_and_then_goes_on(harness, task, agent):
    (trajectory,) = await harness.run(f"idle:{agent}", task(limits=Limits(idle_seconds=4.5)))

    assert (trajectory.outcome.status, trajectory.outcome.cause) == ("completed", None)
