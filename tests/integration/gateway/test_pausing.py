"""A paused attempt waits for its next holder; one that has a checkpoint is paused when its holder is gone."""

from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.rollout import new_rollout
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.wire.gateway_api import OpenRequest

from ...clocks import SteppedClock
from .attempts import ATTEMPT, mark, open_attempt, resume

LEASE_SECONDS = 10.0


async def test_a_paused_attempt_answers_nobody_and_outlives_its_key(gateway, until):
    first = await open_attempt(gateway, lease_seconds=LEASE_SECONDS)
    checkpoint = await mark(gateway, first)
    await gateway.post("/rollouts/r/pause", {"attempt": 0, "key": first["api_key"]})
    gateway.clock.advance(LEASE_SECONDS)
    await gateway.open(rollout_id="witness", lease_seconds=LEASE_SECONDS)
    gateway.clock.advance(LEASE_SECONDS)
    await until(lambda: gateway.log.of(Outcome))  # the witness's outcome: the gateway has checked every expired rollout

    assert (await gateway.chat(first, "hello"))[0] in (401, 410)
    assert (await gateway.post("/rollouts/renew", {"trajectory_ids": ["r-0"], "lease_seconds": 9}))[1]["unknown"]
    status, second = await resume(gateway, checkpoint, lease_seconds=60)
    assert status == 200
    assert (await gateway.chat(second, "hello"))[0] == 200


async def test_an_attempt_with_a_checkpoint_outlives_its_holder(gateway, until):
    first = await open_attempt(gateway, lease_seconds=LEASE_SECONDS)
    checkpoint = await mark(gateway, first)
    gateway.clock.advance(LEASE_SECONDS)
    await until(lambda: gateway.figure("rollouts_paused_total"))

    assert (await resume(gateway, checkpoint))[0] == 200


async def test_one_without_a_checkpoint_does_not(gateway, until):
    await open_attempt(gateway, lease_seconds=LEASE_SECONDS)
    gateway.clock.advance(LEASE_SECONDS)
    await until(gateway.is_empty)

    status, answer = await resume(gateway, {"calls": 0})

    assert status == 404
    assert "closed for good" in answer["error"]["message"]


def test_a_paused_attempt_is_kept_for_so_long_and_no_longer():
    clock = SteppedClock()
    rollouts = RolloutRegistry(10, Counters(), clock, paused_seconds=100)
    paused = rollouts.add(new_rollout(OpenRequest(task_id="t", rollout_id="r"), "run"))
    paused.lease.paused_at = 0.0

    clock.seconds = 99.0
    assert list(rollouts.expired()) == []
    clock.seconds = 100.0
    assert list(rollouts.expired()) == [(paused, "forgotten")]


async def test_a_paused_attempt_cannot_be_opened_anew_and_gives_way_to_the_next(gateway):
    first = await open_attempt(gateway)
    await mark(gateway, first)
    await gateway.post("/rollouts/r/pause", {"attempt": 0})

    assert (await gateway.post("/rollouts", ATTEMPT))[0] == 400
    await open_attempt(gateway, attempt=1)

    assert (await resume(gateway, {"calls": 0}))[0] == 404


async def test_time_that_nobody_worked_on_is_not_counted(gateway):
    first = await open_attempt(gateway, limits={"wall_seconds": 60.0})
    gateway.clock.advance(59.0)
    checkpoint = await mark(gateway, first)
    await gateway.post("/rollouts/r/pause", {"attempt": 0})
    gateway.clock.advance(1000.0)

    _, second = await resume(gateway, checkpoint)
    assert (await gateway.chat(second, "hello"))[0] == 200
    gateway.clock.advance(1.0)
    assert (await gateway.chat(second, "hello"))[0] == 429
