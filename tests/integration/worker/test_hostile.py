"""Agents that harm their own process, on purpose or not: the worker ends them and continues."""

import asyncio
import os
import resource
import signal
from itertools import count, islice
from pathlib import Path

import pytest

from agent_layer.infra.processes.reaper import list_children
from envs.hosts.host_client import HostDiedError
from envs.hosts.protocol import Check
from envs.hosts.target import make_hosts
from tracer.transport.gateway_client import GatewayClient

from ...waiting import within

AGENT = """
import asyncio, os, pathlib, signal, socket, stat, sys, time

HERE = pathlib.Path(__file__).parent

def channels():
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(int(name))
        except OSError:
            continue
        if stat.S_ISSOCK(found.st_mode):
            yield int(name)

def closes_all():
    os.closerange(3, 1024)

def speaks_nonsense():
    for one in channels():
        os.set_blocking(one, True)
        os.write(one, b"\\x00\\x00\\x00\\x03abc")

def announces_much():
    for one in channels():
        os.set_blocking(one, True)
        os.write(one, b"\\xff" * 4096)

async def cuts_off(task, rollout):
    if rollout.attempt == 0:
        globals()[task.id]()
        while True:
            time.sleep(1)
    return 1.0

async def returns_much(task, rollout):
    return "x" * (300 << 20) if rollout.attempt == 0 else 1.0

from envs import resumable

@resumable
async def saves(task, rollout):
    (HERE / f"began-{rollout.attempt}").touch()
    for number in range(3 if rollout.attempt else 1000):
        await rollout.save({"number": number})
        await asyncio.sleep(0.05)
    return 1.0
"""


@pytest.fixture(autouse=True)
def module(write_module):
    """The folder that contains it."""
    return write_module("hostile", AGENT)


@pytest.mark.parametrize("is_isolated", [False, True], ids=["shared", "isolated"])
async def test_an_agent_that_cuts_off_its_process_is_run_again(harness, task, is_isolated):
    tasks = [task(name) for name in ("closes_all", "speaks_nonsense", "announces_much")]

    ended = await harness.run("hostile:cuts_off", *tasks, is_isolated=is_isolated, slots=1)

    assert sorted((one.task.id, one.outcome.status, one.outcome.cause, one.reward) for one in ended) == [
        (name, *ending)
        for name in ("announces_much", "closes_all", "speaks_nonsense")
        for ending in (("completed", None, 1.0), ("lost", "infra", None))
    ]


async def test_a_result_that_is_too_large_is_the_agents_failure(harness, task):
    trajectories = await harness.run("hostile:returns_much", task())

    assert [(one.outcome.status, one.outcome.cause) for one in trajectories] == [
        ("failed", "user"),
        ("completed", None),
    ]
    assert "is larger than" in trajectories[0].outcome.error


async def test_an_agent_whose_gateway_takes_no_more_of_it_hears_so_when_it_saves(harness, task, module, until):
    async with harness.worker("hostile:saves"):
        groups = await harness.submit(task())
        await until((module / "began-0").exists)
        gateway = GatewayClient(harness.settings.gateway_url, harness.settings.api_key)
        await asyncio.to_thread(gateway.close, f"{groups[0]}.0", 0)
        (state,) = await harness.wait(groups)

    assert state.num_accepted == 1


@pytest.fixture
def find_only_child(until):
    """``await find_only_child(pid)``."""

    async def find_only_child(pid):
        (child,) = await until(lambda: list_children(pid))
        return child

    return find_only_child


def leave_descriptors(pid, num):
    """Let a process open only ``num`` more files; return its previous limit."""
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = islice((number for number in count() if number not in taken), num, None)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(free), before[1]))
    return before


@pytest.mark.parametrize("num_descriptors", [0, 1, 2])
async def test_an_attempt_for_which_there_is_no_room_takes_no_other_with_it(settings, find_only_child, num_descriptors):
    hosts = make_hosts(settings, "hostile:saves", is_isolated=True)
    await hosts.release_host(await hosts.acquire_host())  # it serves
    fork_server = await find_only_child(hosts._fork_server.spawned._process.pid)
    before = leave_descriptors(fork_server, num_descriptors)
    try:
        refused = await hosts.acquire_host()
        with pytest.raises(HostDiedError, match=r"could not be forked: .*Too many open files"):
            await refused.ask(Check(token="t", scorer="s"))
        resource.prlimit(fork_server, resource.RLIMIT_NOFILE, before)
        host = await hosts.acquire_host()
        assert await find_only_child(fork_server)
        await hosts.release_host(host)
    finally:
        await hosts.close()


async def test_no_process_is_left_however_many_are_to_be_killed_at_once(settings, find_only_child):
    hosts = make_hosts(settings, "hostile:saves", is_isolated=True)
    host = await hosts.acquire_host()
    client = hosts._fork_server
    fork_server = await find_only_child(client.spawned._process.pid)
    stuck = await find_only_child(await find_only_child(fork_server))
    os.kill(stuck, signal.SIGSTOP)  # it handles no signal
    os.kill(fork_server, signal.SIGSTOP)  # it is busy
    for number in range(1000):
        client.kill(f"nobody-{number}")
    ending = asyncio.create_task(hosts.release_host(host))
    await asyncio.sleep(0)
    os.kill(fork_server, signal.SIGCONT)
    try:
        async with within(30, "the end of an agent that is stopped"):
            await ending
    finally:
        await hosts.close()
