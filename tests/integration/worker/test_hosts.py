"""A worker's agents cannot harm it, because they run in other processes."""

import asyncio
import os
from dataclasses import replace

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.task import Limits

AGENT = """
import asyncio, ctypes, os, pathlib, signal, sys, time
import openai
from agent_layer.schema.task import Task

HERE = pathlib.Path(__file__).parent
client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")

async def ask(text):
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])

async def pid(task, rollout):
    await ask("hi")
    (HERE / f"pid-{rollout.trajectory_id}").write_text(f"{os.getpid()} {os.getppid()}")
    return 1.0

async def blocks(task, rollout):
    await ask("hi")
    gate = os.open(HERE / "gate", os.O_RDWR)
    (HERE / "blocked").touch()
    os.read(gate, 1)
    return 1.0

async def holds_the_gil(task, rollout):
    await ask("hi")
    gate = os.open(HERE / "gate", os.O_RDWR)
    (HERE / "blocked").touch()
    ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)
    return 1.0

async def both_run(task):
    (HERE / f"{task.id}-runs").touch()
    while not all((HERE / f"{name}-runs").exists() for name in ("bad", "good")):
        await asyncio.sleep(0.01)

async def exits(task, rollout):
    await ask("hi")
    await both_run(task)
    if rollout.attempt == 0:
        if task.id == "bad":
            os._exit(7)
        await asyncio.sleep(60)
    return 1.0

async def sticks(task, rollout):
    await both_run(task)
    if rollout.attempt == 0:
        if task.id == "bad":
            time.sleep(60)
        await asyncio.sleep(60)
    return 1.0

async def crashes(task, rollout):
    await ask("hi")
    if rollout.attempt == 0 and task.id == "bad":
        os.kill(os.getpid(), signal.SIGSEGV)
    await asyncio.sleep(1 if rollout.attempt == 0 else 0)
    return 1.0

async def searches(task, rollout):
    from agent_layer.settings import load_settings
    import gc
    held = [repr(one) for one in gc.get_objects() if isinstance(one, (Task, dict))]
    found = [one for one in held if "hush-hush" in one]
    environ = pathlib.Path("/proc/self/environ").read_bytes().decode()
    return {"found": found, "environ": environ, "api_key": load_settings().api_key}

async def breaks(task, rollout):
    if rollout.attempt == 0:
        raise ConnectionResetError("away")
    rollout.reward(0.25)
"""


@pytest.fixture
def module(write_module):
    """The folder that contains it."""
    return write_module("theirs", AGENT)


@pytest.fixture(params=[False, True], ids=["shared", "isolated"])
def isolated(request):
    return {"is_isolated": request.param}


def endings(trajectories):
    return [(one.task.id, one.outcome.status, one.outcome.cause, one.reward) for one in trajectories]


async def test_agents_run_in_another_process(harness, task, module, isolated):
    trajectories = await harness.run("theirs:pid", task("a", group_size=3), **isolated)

    assert [(one.reward, len(one.steps), one.outcome.status) for one in trajectories] == [(1.0, 1, "completed")] * 3
    pids = {path.read_text() for path in module.glob("pid-*")}
    assert str(os.getpid()) not in {pid.split()[0] for pid in pids}
    assert len(pids) == (3 if isolated["is_isolated"] else 1)


@pytest.mark.parametrize("agent", ["blocks", "holds_the_gil"])
async def test_the_lease_of_an_agent_that_blocks_its_process_is_renewed(harness, task, module, until, agent):
    os.mkfifo(module / "gate")
    leases = Keys(harness.settings.namespace).queue("leases")

    async with harness.worker(f"theirs:{agent}"):
        groups = await asyncio.to_thread(harness.dispatcher.submit, [task()])
        await until((module / "blocked").exists)
        for _ in range(3):
            lapses_at = harness.store.redis.zscore(leases, f"{groups[0]}.0")
            await until(lambda before=lapses_at: harness.store.redis.zscore(leases, f"{groups[0]}.0") > before)
        (module / "gate").write_bytes(b"x")
        await asyncio.to_thread(harness.dispatcher.wait, groups, 60)

    (trajectory,) = await harness.trajectories(1)
    assert endings([trajectory]) == [("t", "completed", None, 1.0)]
    assert trajectory.trajectory_id.endswith("-0")


@pytest.mark.usefixtures("module")
async def test_an_agent_that_ends_its_process_loses_what_ran_there_and_all_is_run_again(harness, task):
    trajectories = await harness.run("theirs:exits", task("bad"), task("good"))

    assert sorted(endings(trajectories)) == [
        ("bad", "completed", None, 1.0),
        ("bad", "lost", "infra", None),
        ("good", "completed", None, 1.0),
        ("good", "lost", "infra", None),
    ]
    errors = [one.outcome.error for one in trajectories if one.outcome.error]
    assert all("exit status 7; other attempts in it ended, too: 'work --isolate'" in error for error in errors)


@pytest.mark.usefixtures("module")
async def test_who_ends_with_an_attempt_that_could_not_be_stopped_reads_so_and_has_not_failed(harness, task):
    strict = replace(harness, settings=harness.settings.model_copy(update={"close_seconds": 0.1}))
    stuck = task("bad", limits=Limits(wall_seconds=6.0))
    trajectories = await strict.run("theirs:sticks", stuck, task("good"))

    errors = {one.task.id: one.outcome.error for one in trajectories if one.outcome.error}
    assert errors["bad"] == "the agent ran longer than wall_seconds (6)"
    assert "it was ended with an attempt that did not stop in time" in errors["good"]
    (run,) = harness.dispatcher.runs()
    assert run.causes == [("user", 1)]


@pytest.mark.usefixtures("module")
async def test_an_agent_with_a_process_of_its_own_takes_none_with_it(harness, task):
    trajectories = await harness.run("theirs:crashes", task("bad"), task("good"), is_isolated=True)

    assert sorted(endings(trajectories)) == [
        ("bad", "completed", None, 1.0),
        ("bad", "lost", "infra", None),
        ("good", "completed", None, 1.0),
    ]
    assert "SIGSEGV" in next(one.outcome.error for one in trajectories if one.outcome.error)


@pytest.mark.usefixtures("module")
async def test_an_agent_finds_neither_grading_nor_key_in_its_process(harness, task, isolated):
    (trajectory,) = await harness.run("theirs:searches", task(grading="hush-" + "hush"), **isolated)

    result = trajectory.outcome.result
    assert (result["found"], result["api_key"]) == ([], None)
    assert "AGENT_LAYER" not in result["environ"]


@pytest.mark.usefixtures("module")
async def test_errors_and_rewards_of_another_process_count_as_if_here(harness, task, isolated):
    trajectories = await harness.run("theirs:breaks", task(), **isolated)

    assert endings(trajectories) == [("t", "lost", "infra", None), ("t", "completed", None, 0.25)]


async def test_the_time_that_a_module_takes_to_load_is_not_the_agents(harness, task, write_module):
    write_module("heavy", HEAVY)

    trajectories = await harness.run("heavy:agent", task(limits=Limits(wall_seconds=4.0)))

    assert endings(trajectories) == [("t", "lost", "infra", None), ("t", "completed", None, 1.0)]


HEAVY = """
import os, time

time.sleep(5)

async def agent(task, rollout):
    if rollout.attempt == 0:
        os._exit(7)
    return 1.0
"""


async def test_a_module_that_does_not_end_to_load_ends_its_worker_with_a_sentence(
    harness, task, write_module, isolated
):
    write_module("endless", "import time\ntime.sleep(60)\n")
    hasty = replace(harness, settings=harness.settings.model_copy(update={"start_seconds": 0.5}))

    with pytest.raises(BadInputError, match=r"has not loaded it within 0.5 s; import it by hand"):
        await hasty.run("endless:agent", task(), **isolated)


async def test_a_module_that_lacks_the_agent_ends_its_worker_at_once_whatever_it_began(
    harness, task, write_module, isolated
):
    write_module("busy", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n")
    hasty = replace(harness, settings=harness.settings.model_copy(update={"start_seconds": 50.0}))

    with pytest.raises(BadInputError, match="cannot be imported as module:attribute"):
        await hasty.run("busy:agent", task(), **isolated)


async def test_a_cancelled_agent_in_another_process_ends(harness, task, write_module, isolated, until):
    module = write_module("slow", SLOW)
    async with harness.worker("slow:agent", **isolated):
        groups = await asyncio.to_thread(harness.dispatcher.submit, [task()])
        await until((module / "began").exists)
        await asyncio.to_thread(harness.dispatcher.cancel, groups)
        await until((module / "ended").exists)


SLOW = """
import asyncio, pathlib

HERE = pathlib.Path(__file__).parent

async def agent(task, rollout):
    (HERE / "began").touch()
    try:
        await asyncio.sleep(60)
    finally:
        (HERE / "ended").touch()
"""
