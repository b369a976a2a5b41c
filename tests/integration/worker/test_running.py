"""A worker runs agents: outcomes of their results, errors and time limits."""

import asyncio
import json
import sys
from itertools import islice

import pytest

from agent_layer.schema.task import Limits
from agent_layer.schema.wire.gateway_api import KEY_PREFIX
from trainer_adapter.data.samples import samples_of

from ...waiting import scaled


async def test_a_task_becomes_a_group_of_whole_trajectories_and_samples(harness, task, chatter):
    trajectories = await harness.run(chatter, task("a", group_size=4), task("b", group_size=4), slots=3)

    following = harness.store.follow("trainer", "default", wait_seconds=scaled(30.0))
    deliveries = await asyncio.to_thread(lambda: list(islice(following, 2)))
    assert sorted(one.group.task_id for one in deliveries) == ["a", "b"]
    for one in deliveries:
        assert [trajectory.trajectory_id for trajectory in one.trajectories] == one.group.trajectory_ids
        assert one.group.trajectory_ids == [f"{one.group.group_id}.{member}-0" for member in range(4)]
    assert len(trajectories) == 8
    for trajectory in trajectories:
        assert trajectory.reward == 0.5
        assert trajectory.outcome.status == "completed"
        assert trajectory.outcome.num_calls == len(trajectory.steps) == 2
        assert trajectory.task.id == trajectory.started.task_id
        (sample,) = samples_of(trajectory).samples
        assert sum(sample.loss_mask) == sum(len(step.action.response_token_ids) for step in trajectory.steps)
    questions = [json.loads(t.contents[t.steps[0].state.messages[0]])["content"].split()[1] for t in trajectories]
    assert questions == [trajectory.started.rollout_id for trajectory in trajectories]


async def test_an_agent_that_breaks_is_tried_again_and_its_attempts_have_no_reward(harness, task, chatter):
    async def agent(view, rollout):
        await chatter(view, rollout)
        if rollout.attempt == 0:
            raise ValueError("broke")
        return 1

    trajectories = await harness.run(agent, task())

    assert [(t.outcome.status, t.outcome.cause, t.reward, bool(t.accepted)) for t in trajectories] == [
        ("failed", "user", None, False),
        ("completed", None, 1.0, True),
    ]
    assert "ValueError: broke" in trajectories[0].outcome.error


PLUM = """
async def agent(task, rollout):
    return look({"apple": 1}, rollout.api_key)


def look(prices, key):
    return prices[f"plum {key}"]
"""


async def test_an_attempt_that_fails_keeps_where_and_neither_keys_nor_grading(harness, task, write_module, caplog):
    write_module("plum_agent", PLUM)

    trajectories = await harness.run("plum_agent:agent", task(grading="what only scorers see"))

    (dead,) = harness.dispatcher.dead()
    for text in (*(one.outcome.traceback for one in trajectories), *dead.errors, caplog.text):
        assert 'plum_agent.py", line 7, in look' in text
        assert "KeyError: 'plum " in text
        assert "what only scorers see" not in text
        assert KEY_PREFIX not in text
    assert dead.errors[0].startswith("user: KeyError")


async def test_an_agent_that_always_breaks_dies_with_its_errors(harness, task):
    async def agent(_view, _rollout):
        sys.exit(3)

    await harness.run(agent, task())

    (dead,) = harness.dispatcher.dead()
    assert len(dead.errors) == 3
    assert "exit(3)" in dead.errors[0]


class UnspeakableError(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("error", [UnspeakableError(), ValueError("not UTF-8: \udcff")])
async def test_whatever_an_agent_raises_the_worker_goes_on(harness, task, error):
    async def agent(_view, rollout):
        if rollout.attempt == 0:
            raise error
        return 1.0

    trajectories = await harness.run(agent, task())

    assert [(t.outcome.status, t.reward) for t in trajectories] == [("failed", None), ("completed", 1.0)]


async def test_an_agent_that_takes_too_long_is_ended(harness, task):
    ended = asyncio.Event()

    async def agent(_view, rollout):
        try:
            await asyncio.sleep(0 if rollout.attempt else 600)
        finally:
            ended.set()
        return 1.0

    first, second = await harness.run(agent, task(limits=Limits(wall_seconds=scaled(0.5))))

    assert ended.is_set()
    assert (first.outcome.status, first.reward, second.reward) == ("failed", None, 1.0)
