"""Of a worker, a host or a supervisor that is killed nothing is left, and the task is done by the next."""

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest

from agent_layer.schema.task import Task
from envs.sandbox import SandboxSpec, make_kind

from ...waiting import scaled, wait_for_exit, wait_until
from ..sandbox.leftovers import (
    find_by_argument,
    is_alive,
    list_cgroups,
    list_descendants,
    list_directories,
    list_mounts,
)
from .conftest import SPEC, lapses

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
def stack(shared_stack):
    """One for all victims."""
    return shared_stack


@pytest.fixture(scope="module")
def spec():
    """Of the strongest kind of ours that works here: it has mounts and cgroups to leave."""

    async def works():
        kind = make_kind("namespace")
        try:
            return (await kind.probe()).works
        finally:
            await kind.close()

    return SandboxSpec(kind="namespace") if asyncio.run(works()) else SPEC


@pytest.mark.parametrize(
    "victim", ["worker", *(pytest.param(one, marks=pytest.mark.long) for one in ("host", "supervisor"))]
)
def test_nothing_is_left_of_a_killed(victim, spec, dispatcher, start_worker, tmp_path, worker_output):
    (tmp_path / "agent.py").write_text(AGENT)
    worker = start_worker("agent:agent", "--slots", "2")
    task = Task(id=victim, run="default", sandbox=spec, files={"given": "x"}, calls_optional=True, scorer="agent")
    (group,) = dispatcher.submit([task])
    host = int(wait_until(lambda: (tmp_path / "host").exists() and (tmp_path / "host").read_text(), log=worker_output))
    below = list_descendants(worker.pid)
    (supervisor,) = find_by_argument(below, "envs.sandbox.supervisor")
    boxes = list_descendants(supervisor)

    os.kill({"worker": worker.pid, "host": host, "supervisor": supervisor}[victim], signal.SIGKILL)

    if victim == "worker":
        wait_for_exit(worker)
        wait_until(lambda: not any(map(is_alive, below)))
        assert lapses(dispatcher, f"{group}.0")  # else a lease of minutes would have to end
        start_worker("agent:agent")
    elif victim == "supervisor":
        wait_until(lambda: not any(map(is_alive, boxes)))
    (state,) = dispatcher.wait([group], timeout=scaled(60))
    assert (state.is_closed, state.num_accepted) == (True, 1)
    if victim != "host":
        wait_until(lambda: not list_directories(supervisor) | list_cgroups(supervisor))
        assert (
            not list(Path(tempfile.gettempdir()).glob(f"agent-layer-supervisor-{worker.pid}-*")) or victim != "worker"
        )
    assert not [mount for mount in list_mounts() if f"agent-layer-{supervisor}" in mount]
