"""Sandboxes that fail, and processes that are killed: no false zero, and nothing is left."""

import asyncio
import contextlib
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agent_layer.schema.task import Task
from envs.sandbox import SandboxSpec, make_kind

from ...waiting import until, wait_until
from ...working import dispatcher, pace, stack, start_worker
from ..sandbox.leftovers import (
    find_by_argument,
    is_alive,
    list_cgroups,
    list_descendants,
    list_directories,
    list_mounts,
)
from ..worker.test_leases import lapses
from .conftest import SPEC

__all__ = ["dispatcher", "pace", "stack", "start_worker"]

NUM_TASKS = 24


async def test_failing_sandboxes_are_never_a_reward_of_zero(harness, task, faulty):
    async def agent(_view, rollout):
        await rollout.sandbox.exec(["sh", "-c", "echo 1 > a"])
        result = await rollout.sandbox.exec(["cat", "a"])
        return 1.0 if result.stdout == b"1\n" else 0.0  # as an agent that does not look at the status

    spec = faulty(0.1)
    found = await harness.run(agent, *(task(f"t{number}", sandbox=spec) for number in range(NUM_TASKS)), slots=4)

    accepted = [one for one in found if one.accepted]
    lost = [one for one in found if not one.accepted]
    assert {one.reward for one in accepted} == {1.0}
    assert len(accepted) + len(harness.dispatcher.dead()) == NUM_TASKS
    assert {(one.outcome.status, one.outcome.cause, one.reward) for one in lost} == {("lost", "infra", None)}


async def test_a_box_that_is_lost_ends_the_agent_that_waits_for_something_else(harness, task, faulty):
    async def agent(_view, rollout):
        if rollout.attempt == 0:
            await rollout.sandbox.exec(["lose this box"])
            await asyncio.sleep(60)
        return 1.0

    first, second = await harness.run(agent, task(sandbox=faulty(0)))

    assert (first.outcome.status, first.outcome.cause, first.reward) == ("lost", "infra", None)
    assert "the box was lost while a command ran" in first.outcome.error
    assert (second.outcome.status, second.reward) == ("completed", 1.0)


@pytest.mark.parametrize("how", ["cancel", "lost"])
async def test_the_box_of_a_lease_that_ended_ends_within_seconds(harness, task, how):
    is_running, may_end = asyncio.Event(), asyncio.Event()

    async def agent(_view, rollout):
        async with rollout.sandbox.open(["sh", "-c", "echo up; sleep 600", "marked", ""]) as process:
            await process.stdout.readline()
            is_running.set()
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # as an agent that does not stop
                    await may_end.wait()

    before = list_descendants()
    patient = replace(harness, settings=harness.settings.model_copy(update={"close_seconds": 60.0}))
    async with patient.worker(agent):
        try:
            groups = await asyncio.to_thread(harness.dispatcher.submit, [task()])
            await asyncio.wait_for(is_running.wait(), 30)
            marked = find_by_argument(list_descendants() - before, "marked")
            assert marked  # the shell, and perhaps its fork that is not 'sleep' yet
            if how == "cancel":
                await asyncio.to_thread(harness.dispatcher.cancel, groups)
            else:
                await until(lambda: lapses(harness, f"{groups[0]}.0"))

            await until(lambda: not any(map(is_alive, marked)), seconds=5)
        finally:
            may_end.set()  # else the agent never ends, nor the worker


AGENT = """
import os, pathlib
HERE = pathlib.Path(__file__).parent

async def agent(task, rollout):
    if rollout.attempt == 0:
        async with rollout.sandbox.open(["sh", "-c", "setsid sleep 600 & echo up; sleep 600"]) as process:
            await process.stdout.readline()
            (HERE / "host").write_text(str(os.getpid()))
            await process.wait()
            raise RuntimeError("its box ended")
    return 1.0 if (await rollout.sandbox.exec(["cat", "given"])).stdout == b"x" else 0.0
"""


@pytest.fixture
async def spec():
    """Of the strongest kind of ours that works here: it has mounts and cgroups to leave."""
    kind = make_kind("namespace")
    try:
        return SandboxSpec(kind="namespace") if (await kind.probe()).works else SPEC
    finally:
        await kind.close()


@pytest.mark.parametrize("victim", ["worker", "host", "supervisor"])
def test_nothing_is_left_of_a_killed(victim, spec, dispatcher, start_worker, tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    worker = start_worker("agent:agent", "--slots", "2")
    task = Task(id="t", run="default", sandbox=spec, files={"given": "x"}, calls_optional=True, scorer="agent")
    (group,) = dispatcher.submit([task])
    wait_until((tmp_path / "host").exists)
    below = list_descendants(worker.pid)
    (supervisor,) = find_by_argument(below, "envs.sandbox.supervisor")
    boxes = list_descendants(supervisor)
    pid = {"worker": worker.pid, "host": int(wait_until((tmp_path / "host").read_text)), "supervisor": supervisor}

    os.kill(pid[victim], signal.SIGKILL)

    if victim == "worker":
        worker.wait()
        wait_until(lambda: not any(map(is_alive, below)), seconds=5)
        start_worker("agent:agent")
    elif victim == "supervisor":
        wait_until(lambda: not any(map(is_alive, boxes)), seconds=5)
    (state,) = dispatcher.wait([group], timeout=60)
    assert (state.is_closed, state.num_accepted) == (True, 1)
    if victim != "host":
        wait_until(lambda: not list_directories(supervisor) | list_cgroups(supervisor), seconds=5)
        assert (
            not list(Path(tempfile.gettempdir()).glob(f"agent-layer-supervisor-{worker.pid}-*")) or victim != "worker"
        )
    assert not [mount for mount in list_mounts() if f"agent-layer-{supervisor}" in mount]
