"""Environments whose tools act in the attempt's own box, and what they leave there."""

import base64
import io
import json
import tarfile
from typing import ClassVar

import pytest

from agent_layer.schema.sandbox import SandboxSpec
from agent_layer.schema.task import Limits
from envs import ToolEnvironment
from envs.tools import edit_file, python, read_file, shell

from ...documents import blocks
from .conftest import tool_call

pytestmark = pytest.mark.usefixtures("needs_boxes")

KIND = "namespace"
BROKEN = "def add(a, b):\n    return a - b\n"


class Repair(ToolEnvironment):
    """A file with a mistake."""

    sandbox: ClassVar = SandboxSpec(kind=KIND)
    tools: ClassVar = [shell, read_file, edit_file, python]
    artifacts: ClassVar = ["ops.py"]


CALLS = [
    [tool_call("read_file", "c1", path="ops.py"), tool_call("shell", "c2", command="cd /tmp && export A=b")],
    [tool_call("edit_file", path="ops.py", old="a - b", new="a + b")],
    [
        tool_call("python", "c1", code="import ops; print(ops.add(1, 2))"),
        tool_call("shell", "c2", command="echo $PWD $A"),
    ],
]


async def test_a_model_repairs_a_file_with_tools_and_the_file_is_kept(harness, task):
    harness.engine.script = lambda prompt: (
        {"tool_calls": CALLS[prompt.turn]} if prompt.turn < len(CALLS) else "repaired"
    )
    prompt = task(files={"ops.py": BROKEN}, limits=Limits(observation_tokens=500), scorer="agent")
    options = {"sandbox": Repair.sandbox, "artifacts": Repair.artifacts}  # what a host reports of a target by name

    (trajectory,) = await harness.run(Repair, prompt, **options)

    assert trajectory.outcome.status == "completed", trajectory.outcome
    assert [one.output for one in trajectory.observations[:5]] == [
        "1  def add(a, b):\n2      return a - b",
        "[no output]",
        "edited ops.py:\n1  def add(a, b):\n2      return a + b",
        "3",
        "/tmp b",
    ]
    archive = base64.b64decode(json.loads(trajectory.contents[trajectory.outcome.artifacts]))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.extractfile("ops.py").read().decode() == BROKEN.replace("-", "+")
    assert trajectory.outcome.sandbox.num_execs >= 3


async def test_a_tool_without_a_sandbox_is_the_users_mistake(harness, task, until):
    harness.engine.script = lambda _: {"tool_calls": [tool_call("shell", command="true")]}

    async with harness.worker(Repair):
        harness.dispatcher.submit([task()])
        await until(lambda: any(row.status == "failed" for row in harness.store.query().items))

    outcome = harness.store.get(harness.store.query(order="oldest").items[0].trajectory_id).outcome
    assert outcome.cause == "user"
    assert "ask for one with 'sandbox' in its task" in outcome.error


def count_late(prompt):
    """Look at one minute, then at one that there is not, then count."""
    match prompt.turn:
        case 0:
            return {"tool_calls": [tool_call("state_at", "c1", minute=3), tool_call("state_at", "c2", minute=60)]}
        case 1:
            return {"tool_calls": [tool_call("shell", command="grep -c late day.log | tee notes.txt")]}
        case _:
            return f"it is {prompt.text}"


async def test_the_environment_of_the_guide_runs_as_shown(harness, task, write_module):
    (program,) = [text for path, text in blocks("python") if path == "docs/how-to/environments.md"]
    assert len(program.splitlines()) <= 40
    write_module("logs_of_the_guide", program)
    harness.engine.script = count_late

    (trajectory,) = await harness.run("logs_of_the_guide:LogQuestion", task(input="late", seed=7))

    assert trajectory.reward == 1.0
    first, second = trajectory.observations[:2]
    assert first.output in ("ok", "late", "lost")
    assert second.output == "IndexError: list index out of range"
    assert trajectory.outcome.artifacts is not None
