"""The gateway expires rollouts without calls and renewals, so that dead agents leave no keys behind."""

import asyncio

import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.rollout import new_rollout
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.settings import load_settings

from ...clocks import SteppedClock


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def rollouts(clock):
    return RolloutRegistry(10, Counters(), clock)


@pytest.fixture
def add(rollouts):
    return lambda name: rollouts.add(new_rollout(OpenRequest(task_id="t", rollout_id=name), "run"))


def test_a_rollout_that_is_not_used_lapses(rollouts, add, clock):
    idle, used = add("idle"), add("used")

    clock.seconds = 6.0
    rollouts.find(used.trajectory_id)
    clock.seconds = 12.0

    assert list(rollouts.expired()) == [(idle, "idle")]


async def test_a_rollout_whose_call_runs_is_used(rollouts, add, clock):
    rollout, call = add("long"), asyncio.current_task()
    rollout.lease.running.add(call)

    clock.seconds = 12.0
    assert list(rollouts.expired()) == []
    rollout.lease.running.discard(call)
    clock.seconds = 18.0

    assert list(rollouts.expired()) == []


def test_a_key_expires_unless_it_is_renewed(rollouts, add, clock):
    kept, left = add("kept"), add("left")
    for rollout in (kept, left):
        assert rollouts.renew(rollout.trajectory_id, 5.0)

    clock.seconds = 4.0
    rollouts.renew(kept.trajectory_id, 5.0)
    clock.seconds = 6.0

    assert list(rollouts.expired()) == [(left, "expired")]
    assert not rollouts.renew(left.trajectory_id, 5.0)
    assert not rollouts.renew("unheard-of-0", 5.0)


async def test_an_expired_key_is_refused_and_its_attempt_is_lost(gateway, until):
    opened = await gateway.open(lease_seconds=10.0)
    gateway.clock.advance(10.0)
    await until(lambda: gateway.log.of(Outcome))

    status, answer = await gateway.chat(opened, "hello")

    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert "expired" in answer["error"]["message"]
    (outcome,) = gateway.log.of(Outcome)
    assert (outcome.trajectory_id, outcome.status, outcome.cause) == (opened["trajectory_id"], "lost", "infra")
    assert await gateway.figure('refused_keys_total{reason="expired"}') == 1


async def test_renewing_keeps_a_key_and_names_those_that_are_gone(gateway):
    opened = await gateway.open(lease_seconds=10.0)
    ids = [opened["trajectory_id"], "gone-0"]

    status, renewed = await gateway.post("/rollouts/renew", {"trajectory_ids": ids, "lease_seconds": 60})

    assert (status, renewed["unknown"], renewed["calling"]) == (200, ["gone-0"], [])
    assert list(renewed["quiet_seconds"]) == ids[:1]
    gateway.clock.advance(10.0)

    assert (await gateway.chat(opened, "hello"))[0] == 200


@pytest.mark.parametrize("seconds", [-5, 0, 1e308, 86_401])
async def test_a_lease_without_a_sensible_end_is_refused_and_opens_nothing(gateway, seconds):
    status, answer = await gateway.post("/rollouts", {"task_id": "t", "lease_seconds": seconds})

    assert (status, gateway.log.of(AttemptStarted)) == (400, [])
    assert "lease_seconds" in answer["error"]["message"]

    opened = await gateway.open(lease_seconds=10.0)
    fields = {"trajectory_ids": [opened["trajectory_id"]], "lease_seconds": seconds}
    status, answer = await gateway.post("/rollouts/renew", fields)

    assert status == 400
    assert "lease_seconds" in answer["error"]["message"]


@pytest.mark.parametrize("seconds", ["-5", "0", "1e308", "inf", "nan"])
def test_a_lease_of_the_settings_without_a_sensible_end_is_refused(seconds):
    with pytest.raises(BadInputError, match="lease_seconds"):
        load_settings(lease_seconds=seconds)


async def test_a_worker_writes_the_end_of_its_attempts_itself(gateway, until):
    opened = await gateway.open(owner="worker", lease_seconds=10.0)
    gateway.clock.advance(10.0)

    await until(gateway.is_empty)

    assert gateway.log.of(Outcome) == []
    assert (await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0}))[0] == 200
