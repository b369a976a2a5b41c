"""Nothing that a policy has run turns its zero into null, and nothing that the machine does turns null into a zero."""

import asyncio
import os
import signal

import pytest
import pytest_asyncio

from envs.sandbox import Resources, SandboxSpec

from ...boxes import require_kind
from ..sandbox.leftovers import find_by_argument, list_descendants
from ..sandbox_attempts.conftest import read_stored
from .conftest import make_task, open_harness
from .washing import QUICK, SAFE_ON_HOSTS, WAYS

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESOURCES = Resources(memory_mb=64, disk_mb=16, processes=40, files=512)
SECONDS = 2.0
"""Limit of each command."""
SCORER = """
from agent_layer.errors import SandboxError

async def score(task, trajectory, result):
    return 1.0 if result == "42" else 0.0

class RunsTwice:
    '''Runs what is judged, then looks at it again, as scorers of tests do.'''

    async def score(self, context):
        box = await context.sandbox()
        await box.exec(["python3", "-c", context.result], seconds=2)
        await box.exec(["true"], seconds=2)
        return 1.0 if await read(box) == "42" else 0.0

async def read(box):
    try:
        return (await box.read("answer")).decode(errors="replace")
    except FileNotFoundError:
        return ""
"""


def kinds(*names):
    return [pytest.param(name, marks=() if name == "namespace" else pytest.mark.long) for name in names]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(module_settings):
    async with open_harness(module_settings) as harness:
        yield harness


@pytest.fixture(scope="module", autouse=True)
def _scorers(write_shared_module, tmp_path_factory):
    folder = write_shared_module("washing_scorers", SCORER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        yield


async def act(view, rollout):
    """Run the way of a task, as an agent that looks at no status, and return what it left."""
    box = rollout.sandbox
    await box.exec(["python3", "-c", WAYS[view.id.rpartition(".")[2]]], seconds=SECONDS)
    await box.write("note", b"x" * 1000)
    await box.exec(["true"])
    try:
        return (await box.read("answer")).decode(errors="replace")
    except FileNotFoundError:
        return None


async def hold(view, rollout):
    """Keep the way running in the background, as an agent with a shell, and use the box meanwhile."""
    box = rollout.sandbox
    async with box.open(["python3", "-c", "print(flush=True)\n" + WAYS[view.id.rpartition(".")[2]]]) as process:
        await process.stdout.readline()
        await asyncio.sleep(SECONDS)
        await box.write("note", b"x" * 1000)
        await box.exec(["true"], seconds=SECONDS)
    return None


async def return_way(view, _rollout):
    return WAYS[view.id.rpartition(".")[2]]


async def play(harness, agent, kind, names, scorer="score"):
    """Play each way once; return how each ended, as status, cause and reward."""
    require_kind(kind)
    names = [name for name in names if kind != "process" or name in SAFE_ON_HOSTS]
    spec = SandboxSpec(kind=kind, resources=RESOURCES)
    tasks = [
        make_task(
            f"{agent.__name__}.{kind}.{name}", sandbox=spec, artifacts=["answer"], scorer=f"washing_scorers:{scorer}"
        )
        for name in names
    ]
    async with harness.worker(agent, slots=4):
        states = await harness.wait(await harness.submit(*tasks))
    found = [await read_stored(harness, task, state) for task, state in zip(tasks, states, strict=True)]
    return {
        name: [(one.outcome.status, one.outcome.cause, one.reward, one.outcome.error) for one in tries]
        for name, tries in zip(names, found, strict=True)
    }


def find_washed(played):
    """Ways by which a zero became something else."""
    return {name: tries for name, tries in played.items() if [one[2] for one in tries] != [0.0]}


@pytest.mark.parametrize("names", [QUICK, pytest.param([*WAYS], marks=pytest.mark.long)], ids=["quick", "all"])
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci", "process"))
async def test_a_command_washes_no_zero(harness, kind, names):
    assert find_washed(await play(harness, act, kind, names)) == {}
