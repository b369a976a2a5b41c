"""Attempts pause at a step boundary and resume as the same attempt, on another worker and under newer weights."""

import asyncio
from pathlib import Path

import pytest

from agent_layer.engines.control import EngineControl
from agent_layer.engines.registry import EngineRegistry
from agent_layer.state.checkpoints import checkpoint_prefix
from envs import resumable
from tracer.transport.gateway_client import GatewayClient
from trainer_adapter.data.samples import samples_of

from ...waiting import scaled

NUM_TURNS = 6
RUN = "default"


@pytest.fixture
def talker(client):
    """A resumable agent of six turns; ``talker.began`` has the turns that it began with.

    Its first run never reaches the last turn: it saves states until the worker asks it to pause.
    """

    @resumable
    async def talker(_task, rollout):
        state = rollout.saved or {"messages": [], "turn": 0}
        began.append((rollout.saved or {}).get("turn"))
        messages = state["messages"]
        for turn in range(state["turn"], NUM_TURNS):
            messages.append({"role": "user", "content": f"turn {turn}"})
            answer = await client.chat.completions.create(model="any", messages=messages)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            await rollout.save({"messages": messages, "turn": turn + 1})
            while len(began) == 1 and turn + 2 == NUM_TURNS:
                await asyncio.sleep(0.05)
                await rollout.save({"messages": messages, "turn": turn + 1})
        return 1.0

    began = talker.began = []
    return talker


def read_status(harness, groups):
    (rollout,) = harness.dispatcher.rollouts(groups)
    return rollout.status


def num_asked(harness):
    return len(harness.engine.calls)


async def switch(harness, redis, keys, version):
    registry, url = EngineRegistry(redis, keys, harness.settings.gateway_seconds), harness.engine.url
    load = lambda: EngineControl(url).load(Path("weights") / str(version))  # noqa: E731
    await asyncio.to_thread(registry.switch, url, version, str(version), load, scaled(5.0))


async def ended(harness, groups):
    (state,) = await harness.wait(groups)
    assert state.num_accepted == 1
    (trajectory,) = await harness.trajectories(1)
    return trajectory


def kept(harness):
    return list(harness.store.objects.list(checkpoint_prefix(harness.store.keys)))


async def test_it_pauses_while_weights_are_changed_and_goes_on_elsewhere_under_the_new_ones(
    harness, task, talker, redis, keys, until
):
    async with harness.worker(talker):
        groups = await harness.submit(task())
        await until(lambda: num_asked(harness) >= 2)
        await asyncio.to_thread(harness.dispatcher.pause, RUN, running=True)
        await until(lambda: read_status(harness, groups) == "paused")
    num_before = num_asked(harness)
    assert len(kept(harness)) == 1
    await switch(harness, redis, keys, 1)

    async with harness.worker(talker):
        await asyncio.to_thread(harness.dispatcher.resume, RUN)
        trajectory = await ended(harness, groups)

    assert talker.began == [None, num_before]
    assert [step.status for step in trajectory.steps] == ["ok"] * NUM_TURNS
    versions = [step.action.policy_versions[0][0] for step in trajectory.steps]
    assert versions == [0] * num_before + [1] * (NUM_TURNS - num_before)
    (sample,) = samples_of(trajectory).samples
    assert {version for version in sample.versions if version >= 0} == {0, 1}
    assert sum(sample.loss_mask) == sum(len(step.action.response_token_ids) for step in trajectory.steps)
    (resumed,) = trajectory.resumes
    assert (resumed.abandoned, trajectory.trajectory_id) == ([], f"{groups[0]}.0-0")
    assert trajectory.reward == 1.0
    await until(lambda: not kept(harness))


async def test_a_worker_that_drains_hands_on_what_it_runs_at_the_next_boundary(harness, task, talker, until):
    async with harness.worker(talker):
        groups = await harness.submit(task())
        await until(lambda: num_asked(harness) >= 2)
    async with harness.worker(talker):
        trajectory = await ended(harness, groups)

    assert [step.status for step in trajectory.steps] == ["ok"] * NUM_TURNS
    assert trajectory.started.attempt == 0
    assert talker.began[1] >= 2


async def test_an_agent_that_is_not_declared_goes_on_through_a_pause(harness, task, client, until):
    async def talker(_task, rollout):
        for turn in range(4):
            await client.chat.completions.create(model="any", messages=[{"role": "user", "content": f"turn {turn}"}])
            await rollout.save({"turn": turn})
            await asyncio.sleep(0.1)
        return 1.0

    async with harness.worker(talker):
        groups = await harness.submit(task())
        await until(lambda: num_asked(harness) >= 1)
        await asyncio.to_thread(harness.dispatcher.pause, RUN, running=True)
        trajectory = await ended(harness, groups)

    assert [step.status for step in trajectory.steps] == ["ok"] * 4
    assert trajectory.resumes == []
    assert kept(harness) == []


async def test_an_attempt_that_the_gateway_keeps_no_more_begins_anew(harness, task, talker, until):
    async with harness.worker(talker):
        groups = await harness.submit(task())
        await until(lambda: num_asked(harness) >= 2)
    rollout = harness.dispatcher.rollouts(groups)[0].rollout_id
    gateway = GatewayClient(harness.settings.gateway_url, harness.settings.api_key)
    await asyncio.to_thread(gateway.close, rollout, 0)
    async with harness.worker(talker):
        (state,) = await harness.wait(groups)

    assert state.num_accepted == 1
    await until(lambda: harness.store.query(accepted=True).items)
    (row,) = harness.store.query(accepted=True).items
    assert row.attempt == 1
    assert [step.status for step in harness.store.get(row.trajectory_id).steps] == ["ok"] * NUM_TURNS
    assert kept(harness) == []
