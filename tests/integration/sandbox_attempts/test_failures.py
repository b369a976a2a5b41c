"""Sandboxes that fail or whose lease ends: no false zero, and nothing runs on."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from ...waiting import until, within
from ..sandbox.leftovers import find_by_argument, is_alive, list_descendants
from .conftest import lapses, make_box_task, play

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUM_TASKS = 12


async def test_failing_sandboxes_are_never_a_reward_of_zero(harness, faulty):
    async def agent(_view, rollout):
        await rollout.sandbox.exec(["sh", "-c", "echo 1 > a"])
        result = await rollout.sandbox.exec(["cat", "a"])
        return 1.0 if result.stdout == b"1\n" else 0.0  # as an agent that does not look at the status

    spec = faulty(0.1)
    tasks = [make_box_task(f"t{number}", sandbox=spec) for number in range(NUM_TASKS)]
    found = await play(harness, agent, *tasks, slots=4)

    accepted = [one for one in found if one.accepted]
    lost = [one for one in found if not one.accepted]
    assert lost
    assert {one.reward for one in accepted} == {1.0}
    assert len(accepted) + len(harness.dispatcher.dead()) == NUM_TASKS
    assert {(one.outcome.status, one.outcome.cause, one.reward) for one in lost} == {("lost", "infra", None)}


async def test_a_box_that_is_lost_ends_the_agent_that_waits_for_something_else(harness, faulty):
    async def agent(_view, rollout):
        if rollout.attempt == 0:
            await rollout.sandbox.exec(["lose this box"])
            await asyncio.sleep(600)
        return 1.0

    first, second = await play(harness, agent, make_box_task("lost-box", sandbox=faulty(0)))

    assert (first.outcome.status, first.outcome.cause, first.reward) == ("lost", "infra", None)
    assert "the box was lost while a command ran" in first.outcome.error
    assert (second.outcome.status, second.reward) == ("completed", 1.0)


@pytest.mark.parametrize("how", ["cancel", "lost"])
async def test_the_box_of_a_lease_that_ended_ends_within_seconds(harness, how):
    is_running, may_end = asyncio.Event(), asyncio.Event()

    async def agent(_view, rollout):
        async with rollout.sandbox.open(["sh", "-c", "echo up; sleep 600", "marked", ""]) as process:
            await process.stdout.readline()
            is_running.set()
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # as an agent that does not stop
                    await may_end.wait()

    before = list_descendants()
    patient = replace(harness, settings=harness.settings.model_copy(update={"close_seconds": 600.0}))
    async with patient.worker(agent):
        try:
            groups = await harness.submit(make_box_task(f"lease-{how}"))
            async with within(60, "its box to run"):
                await is_running.wait()
            marked = find_by_argument(list_descendants() - before, "marked")
            assert marked  # the shell, and perhaps its fork that is not 'sleep' yet
            if how == "cancel":
                await asyncio.to_thread(harness.dispatcher.cancel, groups)
            else:
                await until(lambda: lapses(harness.dispatcher, f"{groups[0]}.0"))

            await until(lambda: not any(map(is_alive, marked)), seconds=30)  # of 600
        finally:
            may_end.set()  # else the agent never ends, nor the worker
