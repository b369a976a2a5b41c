"""Agents of every form get the attempt's box, with the task's files; artifacts and usage are stored."""

import asyncio
import base64
import io
import json
import sys
import tarfile
from dataclasses import dataclass

import pytest
import pytest_asyncio

from agent_layer.errors import BadInputError
from agent_layer.schema import Trajectory
from envs.sandbox import SandboxSpec

from .conftest import SPEC, make_box_task, play, read_stored

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENT = """
import tracer
from envs.sandbox import SandboxSpec

async def solve(task, rollout):
    box = rollout.sandbox
    text = (await box.read("in/question")).decode()
    result = await box.exec(["sh", "-c", f"echo {text} solved > out; echo done"])
    return {"reward": 1.0 if result.stdout == b"done\\n" else 0.0}

async def declares(task, rollout):
    result = await rollout.sandbox.exec(["true"])
    return 1.0 if rollout.sandbox.spec.workdir == "/declared" and result.exit_code == 0 else 0.0

declares.sandbox = SandboxSpec(kind="process", workdir="/declared")

class Graph:
    async def ainvoke(self, state):
        result = await tracer.current().sandbox.exec(["cat", "in/question"])
        return {"read": result.stdout.decode()}

graph = Graph()
"""
SCORER = """
from envs.sandbox import SandboxSpec

class BoxScorer:
    async def score(self, context):
        box = await context.sandbox(SandboxSpec(kind="process"))
        return float((await box.exec(["sh", "-c", context.result])).exit_code)
"""
FILES = {"in/question": "riddle"}
LONG_PATH = """
import os
os.mkdir("out")
os.chdir("out")
for _ in range(17):
    os.mkdir("x" * 250)
    os.chdir("x" * 250)
"""


async def solve(rollout):
    box = rollout.sandbox
    text = (await box.read("in/question")).decode()
    result = await box.exec(["sh", "-c", f"echo {text} solved > out; echo done"])
    return 1.0 if result.stdout == b"done\n" else 0.0


async def fill(rollout):
    await rollout.sandbox.write("out", bytes(100_000))
    return 1.0


async def dig(rollout):
    await rollout.sandbox.write("kept", b"yes")
    result = await rollout.sandbox.exec([sys.executable, "-c", LONG_PATH])
    return 1.0 if result.exit_code == 0 else 0.0


async def miss(rollout):
    with pytest.raises(BadInputError, match=r"has no sandbox; ask for one with 'sandbox' in its task"):
        _ = rollout.sandbox
    return 1.0


async def command(_rollout):
    return "exit 7"


ACTS = [
    (solve, make_box_task("solved", files=FILES, artifacts=["out", "absent"])),
    (fill, make_box_task("filled", artifacts=["out"])),
    (dig, make_box_task("dug", artifacts=["kept", "out"])),
    (miss, make_box_task("missed", sandbox=None)),
    (command, make_box_task("judged", sandbox=None, scorer="judging:BoxScorer")),
    (solve, make_box_task("no-place", files={"in": "x", "in/question": "y"})),
    (solve, make_box_task("no-kind", sandbox=SandboxSpec(kind="process", image="other"))),
]
"""What the agent does for each task."""
TASKS = [task for _, task in ACTS]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of the tasks, which one worker had."""

    trajectories: dict[str, Trajectory]
    errors: dict[str, list[str]]
    """Of dead rollouts."""
    offers: set[str]
    elsewhere: str
    """Status of a rollout whose kind of sandbox this host has not."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(harness, module):
    """All tasks of agents that run in the worker."""
    module("judging", SCORER)
    acts = {task.id: act for act, task in ACTS}

    async def agent(view, rollout):
        return await acts[view.id](rollout)

    elsewhere = make_box_task("elsewhere", sandbox=SandboxSpec(kind="absent"))
    async with harness.worker(agent):
        groups = await harness.submit(elsewhere, *TASKS)
        states = await harness.wait(groups[1:])
        (worker,) = harness.dispatcher.workers()
        (waiting,) = harness.dispatcher.rollouts(groups[:1])
    await asyncio.to_thread(harness.dispatcher.cancel, groups[:1])
    dead = {one.rollout_id.rpartition(".")[0]: one.errors for one in harness.dispatcher.dead()}
    found = {task.id: await read_stored(harness, task, state) for task, state in zip(TASKS, states, strict=True)}
    return Outcome(
        trajectories={name: trajectories[0] for name, trajectories in found.items() if trajectories},
        errors={task.id: dead[group] for task, group in zip(TASKS, groups[1:], strict=True) if group in dead},
        offers=set(worker.about["offers"].split()),
        elsewhere=waiting.status,
    )


def read_artifacts(harness, trajectory):
    archive = base64.b64decode(json.loads(harness.store.contents(trajectory)[trajectory.outcome.artifacts]))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {name: files.extractfile(name).read() for name in files.getnames()}


async def test_a_coroutine_acts_in_its_box_and_what_it_left_is_stored(harness, played):
    found = played.trajectories["solved"]

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.findings == ["artifact_missing: absent"]
    assert read_artifacts(harness, found) == {"out": b"riddle solved\n"}
    usage = found.outcome.sandbox
    assert (usage.kind, usage.spec_hash, usage.num_execs, usage.output_bytes) == ("process", SPEC.hash(), 1, 5)
    assert 0 < usage.exec_seconds <= usage.box_seconds
    assert usage.boot_seconds > 0
    assert usage.num_scoring_boxes == 0


async def test_an_agent_in_an_isolated_host_has_the_same_box(harness, module):
    module("boxed", AGENT)
    task = make_box_task("isolated", files=FILES, artifacts=["out"])

    (found,) = await play(harness, "boxed:solve", task, is_isolated=True)

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.artifacts is not None


async def test_a_graph_finds_its_box_through_the_tracer(harness, module):
    module("boxed", AGENT)

    (found,) = await play(harness, "boxed:graph", make_box_task("graph", input={}, files=FILES))

    assert found.outcome.result == {"read": "riddle"}


async def test_a_target_may_declare_the_box_that_its_tasks_do_not_name(harness, module):
    module("boxed", AGENT)

    (found,) = await play(harness, "boxed:declares", make_box_task("declared", sandbox=None))

    assert found.reward == 1.0


async def test_a_command_runs_programs_in_its_box(harness):
    cli = f"{sys.executable} -m agent_layer.cli sandbox exec --"
    script = f"echo typed | {cli} sh -c 'cat > kept; exit 3'; echo $? $({cli} cat kept in/question)"

    (found,) = await play(harness, ["sh", "-c", script], make_box_task("command", files=FILES, artifacts=["kept"]))

    assert found.outcome.result == "3 typed riddle"
    assert found.outcome.sandbox.num_execs == 2
    assert found.outcome.artifacts is not None


async def test_a_scorer_takes_boxes_where_the_agent_had_none(played):
    found = played.trajectories["judged"]

    assert found.reward == 7.0
    assert (found.outcome.sandbox.kind, found.outcome.sandbox.num_scoring_boxes) == (None, 1)


async def test_without_a_box_the_error_says_how_to_get_one(played):
    found = played.trajectories["missed"]

    assert (found.reward, found.outcome.sandbox, found.outcome.artifacts) == (1.0, None, None)


async def test_a_file_that_has_no_place_in_the_box_ends_its_task(played):
    assert "the task's file 'in/question' cannot be written" in played.errors["no-place"][0]


async def test_a_spec_that_no_kind_can_meet_ends_its_task(played):
    assert "kind process has the image 'host' only" in played.errors["no-kind"][0]


async def test_too_large_artifacts_are_the_policys_fault(played):
    found = played.trajectories["filled"]

    assert (found.outcome.status, found.outcome.cause, found.reward) == ("truncated", "policy", 0.0)
    assert "larger than artifact_bytes" in found.outcome.error


async def test_an_artifact_that_cannot_be_read_is_missing_and_the_others_are_taken(harness, played):
    found = played.trajectories["dug"]

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.findings == ["artifact_missing: out"]
    assert read_artifacts(harness, found) == {"kept": b"yes"}


async def test_a_task_waits_for_a_host_where_its_sandbox_works(played):
    assert {"sandbox:process", "isolation:process"} <= played.offers
    assert played.elsewhere == "queued"
    assert played.errors.keys() == {"no-place", "no-kind"}
