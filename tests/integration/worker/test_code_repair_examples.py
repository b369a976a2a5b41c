"""The examples of code repair: a scripted model repairs a task of the set in a real box, and its scorer judges."""

from importlib.util import find_spec

import msgspec
import pytest

from envs.tasksets.repair import Repair

from ...documents import ROOT
from .conftest import RUN, tool_call

pytestmark = pytest.mark.usefixtures("needs_boxes")


def make_turns(reference):
    """Return the tool calls of each turn: look, a wrong edit, the reference's edit, the tests."""
    edit = reference.replies[0]["tool_calls"]
    return [
        [tool_call("list_files", "c1"), tool_call("read_file", "c2", path="nothing.py")],
        [tool_call("edit_file", "c3", path="nothing.py", old="a", new="b")],
        edit,
        [tool_call("shell", "c5", command="python3 -m unittest -q 2>&1 | tail -1")],
    ]


@pytest.mark.parametrize("framework", ["langgraph_agent", pytest.param("openai_agent", marks=pytest.mark.long)])
async def test_an_agent_of_a_framework_repairs_code_in_its_sandbox(harness, framework, monkeypatch):
    package = "agents" if framework == "openai_agent" else "langgraph"
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; the extra 'agents' brings it")
    monkeypatch.syspath_prepend(ROOT)
    task = msgspec.structs.replace(next(Repair().tasks(split="train", level=1, count=1)), run=RUN)
    turns = make_turns(Repair().solve(task))
    harness.engine.script = lambda prompt: (
        {"tool_calls": turns[prompt.turn]} if prompt.turn < len(turns) else "repaired"
    )

    (trajectory,) = await harness.run(f"examples.code_repair.{framework}:agent", task)

    assert (trajectory.outcome.status, trajectory.outcome.result) == ("completed", "repaired")
    reported = [one["content"] for one in harness.engine.calls[-1].body["messages"] if one["role"] == "tool"]
    assert task.artifacts[0] in reported[0]
    assert reported[1:3] == ["nothing.py: No such file or directory"] * 2
    assert reported[3].startswith(f"edited {task.artifacts[0]}:")
    assert reported[4] == "OK"
    assert [step.capture_level for step in trajectory.steps] == ["tokens"] * 5
    assert trajectory.reward == 1.0
