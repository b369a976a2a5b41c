"""A paused attempt waits for its next holder; one that has a checkpoint is paused when its holder is gone."""

import asyncio

from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.rollout import new_rollout
from agent_layer.schema.wire.gateway_api import OpenRequest

from .handing_on import ATTEMPT, mark, open_attempt, resume


async def let_lapse(house):
    """From now on the key holds for a moment: before, no machine is too slow for the test."""
    await house.post("/rollouts/renew", {"trajectory_ids": ["r-0"], "lease_seconds": 0.1})


async def test_a_paused_attempt_answers_nobody_and_outlives_its_key(house):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    await let_lapse(house)
    await house.post("/rollouts/r/pause", {"attempt": 0, "key": first["api_key"]})
    await asyncio.sleep(1.2)  # longer than the key holds and than the gateway's look at what has lapsed

    assert (await house.chat(first, "hello"))[0] in (401, 410)
    assert (await house.post("/rollouts/renew", {"trajectory_ids": ["r-0"], "lease_seconds": 9}))[1]["unknown"]
    status, second = await resume(house, checkpoint, lease_seconds=60)
    assert status == 200
    assert (await house.chat(second, "hello"))[0] == 200


async def test_an_attempt_with_a_checkpoint_outlives_its_holder(house, until):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    await let_lapse(house)
    await until(lambda: house.figure("rollouts_paused_total"))

    assert (await resume(house, checkpoint))[0] == 200


async def test_one_without_a_checkpoint_does_not(house, until):
    await open_attempt(house, lease_seconds=0.1)
    await until(house.is_empty)

    status, answer = await resume(house, {"calls": 0})

    assert status == 404
    assert "closed for good" in answer["error"]["message"]


def test_a_paused_attempt_is_kept_for_so_long_and_no_longer():
    class Clock:
        seconds = 0.0

        def __call__(self):
            return self.seconds

    clock = Clock()
    rollouts = RolloutRegistry(10, Counters(), clock, paused_seconds=100)
    paused = rollouts.add(new_rollout(OpenRequest(task_id="t", rollout_id="r"), "run"))
    paused.paused_at = 0.0

    clock.seconds = 99.0
    assert list(rollouts.expired()) == []
    clock.seconds = 100.0
    assert list(rollouts.expired()) == [(paused, "forgotten")]


async def test_a_paused_attempt_cannot_be_opened_anew_and_gives_way_to_the_next(house):
    first = await open_attempt(house)
    await mark(house, first)
    await house.post("/rollouts/r/pause", {"attempt": 0})

    assert (await house.post("/rollouts", ATTEMPT))[0] == 400
    await open_attempt(house, attempt=1)

    assert (await resume(house, {"calls": 0}))[0] == 404


async def test_time_that_nobody_worked_on_is_not_counted(house):
    first = await open_attempt(house, limits={"wall_seconds": 5.0})
    checkpoint = await mark(house, first)
    await house.post("/rollouts/r/pause", {"attempt": 0})
    await asyncio.sleep(5.1)

    _, second = await resume(house, checkpoint)
    assert (await house.chat(second, "hello"))[0] == 200
    async with asyncio.timeout(30):
        while (await house.chat(second, "hello"))[0] == 200:
            pass
    assert (await house.chat(second, "hello"))[0] == 429
