"""Attempts with sandboxes: a worker with its supervisor, and a kind whose boxes fail as often as asked."""

import os
import sys

import pytest
import pytest_asyncio

from envs.sandbox import SandboxSpec

from ...queues import open_queue
from ...waiting import until
from ..worker.conftest import make_task, open_harness

SPEC = SandboxSpec(kind="process")
"""Works on every machine; what a kind stops is tested elsewhere."""

FAULTY = '''
"""Kind ``faulty``: boxes of kind ``process``; some starts fail, and some commands lose their box."""

import random
from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import ExecResult
from envs.sandbox import make_kind

CHANCE = {chance}

class FaultyKind:
    name, isolation, cost, stops = "faulty", "none", 99, "Nothing; for tests."

    def __init__(self):
        self.behind = make_kind("process")
        self.random = random.Random(1)

    async def probe(self):
        return await self.behind.probe()

    async def start(self, spec, *, owner):
        if self.random.random() < CHANCE:
            raise SandboxError("sandbox: no room, as the test asks")
        box = await self.behind.start(spec, owner=owner)
        run = box.exec

        async def exec(argv, **options):
            if self.random.random() < CHANCE or argv[0] == "lose this box":
                await box.close()
                return ExecResult(status="gone", truncated=True)
            return await run(argv, **options)

        box.exec = exec
        return box

    async def close(self):
        await self.behind.close()
'''
ENTRY_POINTS = "[agent_layer.sandboxes]\nfaulty = faulty_kind:FaultyKind\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(module_settings):
    """What all workers of a module have around them."""
    async with open_harness(module_settings.model_copy(update={"artifact_bytes": 50_000})) as harness:
        yield harness


def make_box_task(name, **fields):
    """Return a task whose agent gets a box."""
    return make_task(name, **{"sandbox": SPEC, **fields})


async def play(harness, agent, *tasks, **options):
    """Work until the tasks have ended; return their trajectories, those of a task oldest first."""
    async with harness.worker(agent, **options):
        states = await harness.wait(await harness.submit(*tasks))
    return [one for task, state in zip(tasks, states, strict=True) for one in await read_stored(harness, task, state)]


async def read_stored(harness, task, state):
    """Return a task's trajectories once they are whole in the store, oldest first."""

    def find_rows():
        rows = harness.store.query(task=task.id, order="oldest", limit=1000).items
        is_whole = sum(row.accepted for row in rows) >= state.num_accepted and all(row.ended_at for row in rows)
        return (rows,) if is_whole else None

    (rows,) = await until(find_rows)
    return [harness.store.get(row.trajectory_id) for row in rows]


def lapses(dispatcher, rollout_id):
    """Let a lease lapse; whether it has, which a heartbeat in between prevents."""
    queue = open_queue(dispatcher)
    queue.redis.zadd(queue.keys.queue("leases"), {rollout_id: 0}, xx=True)
    queue.reap()
    (state,) = dispatcher.rollouts([rollout_id.rpartition(".")[0]])
    return state.num_failures == 1


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """``module(name, text)`` writes a module that hosts and supervisors find too."""
    folder = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

        def write(name, text):
            (folder / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
            return folder

        yield write


@pytest.fixture
def faulty(module):
    """``faulty(chance)`` registers the kind as an installed package does; returns a spec of it."""

    def register(chance):
        installed = module("faulty_kind", FAULTY.format(chance=chance)) / "faulty-1.dist-info"
        installed.mkdir(exist_ok=True)
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
        (installed / "entry_points.txt").write_text(ENTRY_POINTS)
        return SandboxSpec(kind="faulty")

    return register
