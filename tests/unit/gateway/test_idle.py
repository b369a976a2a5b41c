"""Rollouts that nobody uses any more are closed, so that dead agents leave no keys behind."""

import asyncio

import pytest

from agent_layer.gateway.answers import RefusedError
from agent_layer.gateway.opening import rollout_of
from agent_layer.gateway.rollouts import Rollouts
from agent_layer.schema.gateway import OpenRequest


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rollouts(clock):
    return Rollouts("operator", idle_seconds=10, clock=clock)


@pytest.fixture
def add(rollouts):
    return lambda name: rollouts.add(rollout_of(OpenRequest(task_id="t", rollout_id=name), "run"))


def test_a_rollout_that_was_idle_for_too_long_is_closed(rollouts, add, clock):
    idle, used = add("idle"), add("used")

    clock.seconds = 6.0
    rollouts.enter(used.trajectory_id, used.api_key)
    clock.seconds = 12.0
    add("another")

    assert (idle.is_open, used.is_open) == (False, True)


def test_the_key_of_an_idle_rollout_is_refused_even_when_nothing_else_is_opened(rollouts, add, clock):
    idle = add("idle")

    clock.seconds = 12.0

    with pytest.raises(RefusedError, match="closed"):
        rollouts.enter(idle.trajectory_id, idle.api_key).check_is_open()


async def test_a_rollout_whose_call_still_runs_is_not_idle(add, clock):
    rollout, call = add("long"), asyncio.current_task()
    rollout.running.add(call)

    clock.seconds = 12.0
    add("another")
    rollout.running.discard(call)
    clock.seconds = 18.0
    add("third")

    assert rollout.is_open
