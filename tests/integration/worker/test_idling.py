"""Attempts that stay idle for longer than their tasks allow."""

import pytest

from agent_layer.schema.task import Limits

from ...waiting import scaled
from ...working import ASK

IDLE = f"""
import asyncio
{ASK}
async def sleeps(task, rollout):
    await ask(rollout)
    await asyncio.sleep(0 if rollout.attempt else 600)
    return 1.0

async def waits(task, rollout):
    if rollout.attempt == 0:
        await ask(rollout)
    return 1.0

async def shows_itself(task, rollout):
    for number in range(13):
        if task.input["by"] == "calls":
            await ask(rollout)
        else:
            rollout.reward(float(number), name="progress")
        await asyncio.sleep(task.input["pause_seconds"])
    return 1.0
"""


@pytest.fixture(autouse=True)
def _module(write_module):
    write_module("idle", IDLE)


async def test_an_agent_that_records_nothing_is_ended_for_its_own_fault(harness, task):
    limits = Limits(idle_seconds=scaled(0.6))

    first, second = await harness.run("idle:sleeps", task(limits=limits))

    assert (first.outcome.status, first.outcome.cause, second.reward) == ("failed", "user", 1.0)
    assert f"idle_seconds ({limits.idle_seconds:g})" in first.outcome.error


async def test_an_agent_whose_call_is_not_answered_is_ended_for_the_infrastructures(harness, task):
    harness.engine.prefill_seconds = harness.engine.token_seconds = 600.0

    first, second = await harness.run("idle:waits", task(limits=Limits(idle_seconds=scaled(0.6))))

    assert (first.outcome.status, first.outcome.cause, second.reward) == ("lost", "infra", 1.0)
    assert "in flight" in first.outcome.error


async def test_agents_that_record_or_call_now_and_then_go_on(harness, task):
    limits = Limits(idle_seconds=scaled(1.2))
    pause_seconds = limits.idle_seconds / 10
    tasks = [task(by, input={"by": by, "pause_seconds": pause_seconds}, limits=limits) for by in ("records", "calls")]

    ended = await harness.run("idle:shows_itself", *tasks)

    assert [(one.outcome.status, one.outcome.cause) for one in ended] == [("completed", None)] * 2
