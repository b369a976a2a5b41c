"""Agents of every form get the attempt's box, with the task's files; artifacts and usage are stored."""

import asyncio
import base64
import io
import json
import sys
import tarfile
from dataclasses import replace

import pytest

from agent_layer.errors import BadInputError
from envs.sandbox import SandboxSpec

from .conftest import SPEC

AGENT = """
import tracer
from envs.sandbox import SandboxSpec

async def solve(task, rollout):
    box = rollout.sandbox
    text = (await box.read("in/question")).decode()
    result = await box.exec(["sh", "-c", f"echo {text} solved > out; echo done"])
    return {"reward": 1.0 if result.stdout == b"done\\n" else 0.0}

async def declares(task, rollout):
    return 1.0 if rollout.sandbox.spec.workdir == "/declared" else 0.0

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


async def solve(_view, rollout):
    box = rollout.sandbox
    text = (await box.read("in/question")).decode()
    result = await box.exec(["sh", "-c", f"echo {text} solved > out; echo done"])
    return 1.0 if result.stdout == b"done\n" else 0.0


async def test_a_coroutine_acts_in_its_box_and_what_it_left_is_stored(harness, task):
    (found,) = await harness.run(solve, task(files=FILES, artifacts=["out", "absent"]))

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.findings == ["artifact_missing: absent"]
    archive = base64.b64decode(json.loads(harness.store.contents(found)[found.outcome.artifacts]))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.getnames() == ["out"]
        assert files.extractfile("out").read() == b"riddle solved\n"
    usage = found.outcome.sandbox
    assert (usage.kind, usage.spec_hash, usage.num_execs, usage.output_bytes) == ("process", SPEC.hash(), 1, 5)
    assert usage.exec_seconds > 0
    assert usage.boot_seconds > 0
    assert usage.num_scoring_boxes == 0


@pytest.mark.parametrize("is_isolated", [False, True])
async def test_an_agent_in_a_host_has_the_same_box(harness, task, module, is_isolated):
    module("boxed", AGENT)

    (found,) = await harness.run("boxed:solve", task(files=FILES, artifacts=["out"]), is_isolated=is_isolated)

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.artifacts is not None


async def test_a_graph_finds_its_box_through_the_tracer(harness, task, module):
    module("boxed", AGENT)

    (found,) = await harness.run("boxed:graph", task(input={}, files=FILES))

    assert found.outcome.result == {"read": "riddle"}


async def test_a_target_may_declare_the_box_that_its_tasks_do_not_name(harness, task, module):
    module("boxed", AGENT)

    (found,) = await harness.run("boxed:declares", task(sandbox=None))

    assert found.reward == 1.0


async def test_a_command_runs_programs_in_its_box(harness, task):
    cli = f"{sys.executable} -m agent_layer.cli sandbox exec --"
    script = f"echo typed | {cli} sh -c 'cat > kept; exit 3'; echo $? $({cli} cat kept in/question)"

    (found,) = await harness.run(["sh", "-c", script], task(files=FILES, artifacts=["kept"]))

    assert found.outcome.result == "3 typed riddle"
    assert found.outcome.sandbox.num_execs == 2
    assert found.outcome.artifacts is not None


async def test_a_scorer_takes_boxes_where_the_agent_had_none(harness, task, module):
    module("judging", SCORER)

    async def agent(_view, _rollout):
        return "exit 7"

    (found,) = await harness.run(agent, task(sandbox=None, scorer="judging:BoxScorer"))

    assert found.reward == 7.0
    assert (found.outcome.sandbox.kind, found.outcome.sandbox.num_scoring_boxes) == (None, 1)


async def test_without_a_box_the_error_says_how_to_get_one(harness, task):
    async def agent(_view, rollout):
        with pytest.raises(BadInputError, match=r"has no sandbox; ask for one with 'sandbox' in its task"):
            _ = rollout.sandbox
        return 1.0

    (found,) = await harness.run(agent, task(sandbox=None))

    assert (found.reward, found.outcome.sandbox, found.outcome.artifacts) == (1.0, None, None)


async def test_a_file_that_has_no_place_in_the_box_ends_its_task(harness, task):
    await harness.run(solve, task(files={"in": "x", "in/question": "y"}))

    (dead,) = harness.dispatcher.dead()
    assert "the task's file 'in/question' cannot be written" in dead.errors[0]


async def test_a_spec_that_no_kind_can_meet_ends_its_task(harness, task):
    await harness.run(solve, task(sandbox=SandboxSpec(kind="process", image="other")))

    (dead,) = harness.dispatcher.dead()
    assert "kind process has the image 'host' only" in dead.errors[0]


async def test_too_large_artifacts_are_the_policys_fault(harness, task):
    async def agent(_view, rollout):
        await rollout.sandbox.write("out", bytes(100_000))
        return 1.0

    strict = replace(harness, settings=harness.settings.model_copy(update={"artifact_bytes": 50_000}))
    (found,) = await strict.run(agent, task(artifacts=["out"]))

    assert (found.outcome.status, found.outcome.cause, found.reward) == ("truncated", "policy", 0.0)
    assert "larger than artifact_bytes" in found.outcome.error


LONG_PATH = """
import os
os.mkdir("out")
os.chdir("out")
for _ in range(17):
    os.mkdir("x" * 250)
    os.chdir("x" * 250)
"""


async def test_an_artifact_that_cannot_be_read_is_missing_and_the_others_are_taken(harness, task):
    async def agent(_view, rollout):
        await rollout.sandbox.write("kept", b"yes")
        result = await rollout.sandbox.exec([sys.executable, "-c", LONG_PATH])
        return 1.0 if result.exit_code == 0 else 0.0

    (found,) = await harness.run(agent, task(artifacts=["kept", "out"]))

    assert (found.outcome.status, found.reward) == ("completed", 1.0)
    assert found.outcome.findings == ["artifact_missing: out"]
    archive = base64.b64decode(json.loads(harness.store.contents(found)[found.outcome.artifacts]))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.getnames() == ["kept"]


async def test_a_task_waits_for_a_host_where_its_sandbox_works(harness, task):
    async def agent(_view, _rollout):
        return 1.0

    elsewhere = task("elsewhere", sandbox=SandboxSpec(kind="absent"))
    async with harness.worker(agent):
        groups = await asyncio.to_thread(harness.dispatcher.submit, [elsewhere, task("here")])
        await asyncio.to_thread(harness.dispatcher.wait, groups[1:], 60)
        (worker,) = harness.dispatcher.workers()

    assert {"sandbox:process", "isolation:process"} <= set(worker.about["offers"].split())
    assert [one.status for one in harness.dispatcher.rollouts(groups)] == ["queued", "completed"]
