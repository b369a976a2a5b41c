"""A worker's agents cannot harm it, because they run in other processes."""

import asyncio
import os
from dataclasses import replace

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra.processes.reaper import list_children
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.task import Limits

from ...processes import read_command
from ...waiting import scaled
from ...working import ASK
from .conftest import make_task, open_harness

AGENT = f"""
import asyncio, ctypes, os, pathlib, signal, time
from agent_layer.schema.task import Task
{ASK}
HERE = pathlib.Path(__file__).parent

async def pid(task, rollout):
    await ask(rollout)
    return os.getpid()

async def holds_the_gil(task, rollout):
    await ask(rollout)
    gate = os.open(HERE / "gate", os.O_RDWR)
    (HERE / "blocked").touch()
    ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)
    return 1.0

async def appears(name):
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)

async def both_run(task):
    (HERE / f"{{task.id}}-runs").touch()
    for name in ("bad-runs", "good-runs"):
        await appears(name)

async def exits(task, rollout):
    await ask(rollout)
    await both_run(task)
    if rollout.attempt == 0:
        if task.id == "bad":
            os._exit(7)
        await asyncio.sleep(600)
    return 1.0

async def sticks(task, rollout):
    await both_run(task)
    if rollout.attempt == 0:
        if task.id == "bad":
            time.sleep(600)
        await asyncio.sleep(600)
    return 1.0

async def crashes(task, rollout):
    await ask(rollout)
    await both_run(task)
    if task.id == "good":
        await appears("goes-on")
    elif rollout.attempt == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    (HERE / "goes-on").touch()
    return 1.0

async def searches(task, rollout):
    from agent_layer.settings import load_settings
    import gc
    held = [repr(one) for one in gc.get_objects() if isinstance(one, (Task, dict))]
    found = [one for one in held if "-".join(["hush"] * 2) in one]  # this text may be in memory, too
    environ = pathlib.Path("/proc/self/environ").read_bytes().decode()
    return {{"found": found, "environ": environ, "api_key": load_settings().api_key}}

async def breaks(task, rollout):
    if rollout.attempt == 0:
        raise ConnectionResetError("away")
    rollout.reward(0.25)

async def any_of_them(task, rollout):
    return await globals()[task.input](task, rollout)
"""


KINDS = ("shared", "isolated")
"""One process for all attempts, and one for each."""


@pytest.fixture
def module(write_module):
    """The folder that contains it."""
    return write_module("theirs", AGENT)


@pytest.fixture(params=KINDS)
def isolated(request):
    return {"is_isolated": request.param == "isolated"}


@pytest.fixture(scope="module")
def ended(module_settings, write_shared_module):
    """``ended(kind, name)``: attempts of this agent in hosts of this kind, oldest first."""
    write_shared_module("theirs", AGENT)

    async def run():
        async with open_harness(module_settings) as harness:
            for kind in KINDS:
                tasks = [
                    make_task(f"{kind}-{name}", input=name, group_size=size, grading="hush-" + "hush")
                    for name, size in (("pid", 3), ("breaks", 1), ("searches", 1))
                ]
                async with harness.worker("theirs:any_of_them", is_isolated=kind == "isolated"):
                    await harness.wait(await harness.submit(*tasks))
            return await harness.trajectories(10)

    trajectories = asyncio.run(run())
    return lambda kind, name: [one for one in trajectories if one.task.id == f"{kind}-{name}"]


def endings(trajectories):
    return [(one.task.id, one.outcome.status, one.outcome.cause, one.reward) for one in trajectories]


@pytest.mark.parametrize("kind", KINDS)
def test_agents_run_in_another_process(ended, kind):
    trajectories = ended(kind, "pid")

    assert [(len(one.steps), one.outcome.status) for one in trajectories] == [(1, "completed")] * 3
    pids = {one.outcome.result for one in trajectories}
    assert os.getpid() not in pids
    assert {one.reward for one in trajectories} == pids
    assert len(pids) == (3 if kind == "isolated" else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_finds_neither_grading_nor_key_in_its_process(ended, kind):
    (trajectory,) = ended(kind, "searches")

    result = trajectory.outcome.result
    assert (result["found"], result["api_key"]) == ([], None)
    assert "AGENT_LAYER" not in result["environ"]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_and_rewards_of_another_process_count_as_if_here(ended, kind):
    first, second = ended(kind, "breaks")

    assert (first.outcome.status, first.outcome.cause, first.reward) == ("lost", "infra", None)
    assert (second.outcome.status, second.outcome.cause, second.reward) == ("completed", None, 0.25)


async def test_the_lease_of_an_agent_that_blocks_its_process_is_renewed(harness, task, module, until):
    os.mkfifo(module / "gate")
    leases = Keys(harness.settings.namespace).queue("leases")

    async with harness.worker("theirs:holds_the_gil"):
        groups = await harness.submit(task())
        await until((module / "blocked").exists)
        for _ in range(3):
            lapses_at = harness.store.redis.zscore(leases, f"{groups[0]}.0")
            await until(lambda before=lapses_at: harness.store.redis.zscore(leases, f"{groups[0]}.0") > before)
        (module / "gate").write_bytes(b"x")
        await harness.wait(groups)

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
    limits = Limits(wall_seconds=scaled(1.0))  # both begin in it
    trajectories = await strict.run("theirs:sticks", task("bad", limits=limits), task("good"))

    errors = {one.task.id: one.outcome.error for one in trajectories if one.outcome.error}
    assert errors["bad"] == f"the agent ran longer than wall_seconds ({limits.wall_seconds:g})"
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


async def test_the_time_that_a_module_takes_to_load_is_not_the_agents(harness, task, write_module):
    limits = Limits(wall_seconds=scaled(0.6))
    write_module("heavy", HEAVY.replace("SECONDS", str(1.5 * limits.wall_seconds)))

    trajectories = await harness.run("heavy:agent", task(limits=limits))

    assert endings(trajectories) == [("t", "lost", "infra", None), ("t", "completed", None, 1.0)]


HEAVY = """
import os, pathlib, time

ENDED = pathlib.Path(__file__).with_name("ended")
if ENDED.exists():
    time.sleep(SECONDS)

async def agent(task, rollout):
    if rollout.attempt == 0:
        ENDED.touch()
        os._exit(7)
    return 1.0
"""


async def test_a_module_that_does_not_end_to_load_ends_its_worker_with_a_sentence(
    harness, task, write_module, isolated
):
    write_module("endless", "import time\ntime.sleep(600)\n")
    hasty = replace(harness, settings=harness.settings.model_copy(update={"start_seconds": 0.5}))

    with pytest.raises(BadInputError, match=r"has not loaded it within 0.5 s; import it by hand"):
        await hasty.run("endless:agent", task(), **isolated)
    assert not [pid for pid in list_children(os.getpid()) if "envs.hosts" in read_command(pid)]


async def test_a_module_that_lacks_the_agent_ends_its_worker_at_once_whatever_it_began(
    harness, task, write_module, isolated
):
    write_module("busy", "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n")
    hasty = replace(harness, settings=harness.settings.model_copy(update={"start_seconds": scaled(50.0)}))

    with pytest.raises(BadInputError, match="cannot be imported"):
        await hasty.run("busy:agent", task(), **isolated)


async def test_a_cancelled_agent_in_another_process_ends(harness, task, write_module, isolated, until):
    module = write_module("slow", SLOW)
    async with harness.worker("slow:agent", **isolated):
        groups = await harness.submit(task())
        await until((module / "began").exists)
        await asyncio.to_thread(harness.dispatcher.cancel, groups)
        await until((module / "ended").exists)


SLOW = """
import asyncio, pathlib

HERE = pathlib.Path(__file__).parent

async def agent(task, rollout):
    (HERE / "began").touch()
    try:
        await asyncio.sleep(600)
    finally:
        (HERE / "ended").touch()
"""
