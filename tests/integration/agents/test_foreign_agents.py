"""Foreign agents: unmodified libraries that receive an address and a key, and nothing else."""

import json
from itertools import pairwise

import pytest

from .conftest import solve


def assert_exact(trajectory, engine):
    """Each call of the engine is one step, with the very ids that it saw and gave."""
    assert len(trajectory.steps) == len(engine.calls)
    for step, seen in zip(trajectory.steps, engine.calls, strict=True):
        assert step.prompt_token_ids.tolist() == seen.prompt_token_ids
        assert step.action.response_token_ids.tolist() == seen.token_ids[0]
        assert (step.capture_level, step.status) == ("tokens", "ok")


def assert_continued(steps):
    """All steps are one conversation: each prompt is stored as what it adds to the step before."""
    assert steps[0].prompt.parent_call is None
    for before, step in pairwise(steps):
        assert step.prompt.parent_call == before.call_id
        assert len(step.prompt.delta) < len(step.prompt_token_ids)


def read_messages(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


def assert_used_the_tool(trajectory, first, second):
    (tool,) = json.loads(trajectory.contents[first.state.tools])
    assert tool["function"]["name"] == "add"
    (call,) = first.action.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 40, "b": 2}
    answer = read_messages(trajectory, second)[-1]
    assert (answer["role"], answer["tool_call_id"], answer["content"]) == ("tool", call["id"], "42")
    assert_continued([first, second])


@pytest.mark.long
def test_agents_with_a_tool_are_conversations_of_two_exact_steps_and_dspy_is_exact_though_it_continues_nothing(
    capture, engine
):
    """In one process, because it takes seconds to import what most of them share."""
    engine.script = solve_or_react
    loops = ["langgraph_react.py", "openai_agents.py", "anthropic_loop.py", "litellm_loop.py"]

    output, trajectory = capture(*loops, "dspy_react.py")

    assert output.splitlines() == ["it is 42"] * 5 + ["42"]
    assert_exact(trajectory, engine)
    assert len(trajectory.steps) == 2 * 5 + 3
    for at in range(0, 10, 2):
        assert_used_the_tool(trajectory, *trajectory.steps[at : at + 2])


def solve_or_react(prompt):
    return react(prompt) if "[[ ##" in json.dumps(prompt.messages[0]) else solve(prompt)


def react(prompt):
    """Speak as DSPy's ReAct asks for it: a field after a header of its own line."""
    if "next_tool_name" not in json.dumps(prompt.messages[0]):
        return fields(reasoning="it was added", answer="42")
    is_done = "observation_0" in json.dumps(prompt.messages[-1])
    return fields(
        next_thought="as the tools say",
        next_tool_name="finish" if is_done else "add",
        next_tool_args="{}" if is_done else '{"a": 40, "b": 2}',
    )


def fields(**values):
    return [line for name, value in values.items() for line in (f"\n[[ ## {name} ## ]]\n", f"{value}")]


def think_and_add(prompt):
    """Call the tool with a thought, a text, and spaces that no client would write."""
    if prompt.messages[-1]["role"] == "tool":
        return {"reasoning": "done", "content": f"it is {prompt.text}"}
    call = {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": ' {"b":2,\n "a": 40}'}}
    return {"reasoning": "let me add", "content": "adding", "tool_calls": [call]}


def are_threads(first, second):
    return (first["thread"]["type"], second["thread"]["type"], len(second["messages"])) == ("create", "continue", 1)


def are_references(first, second):
    kinds = [item.get("type") for item in second["input"][len(first["input"]) :]]
    return "item_reference" in kinds and "message" not in kinds


@pytest.mark.parametrize(
    ("program", "is_short"), [("anthropic_tools.mjs", are_threads), ("ai_sdk.mjs", are_references)]
)
def test_the_model_reads_all_that_an_agent_in_javascript_only_refers_to(capture, engine, questions, program, is_short):
    """Once it asks for whole answers, and once for streams."""
    engine.script = think_and_add

    output, trajectory = capture(program)

    assert output.splitlines() == ["it is 42"] * 2
    assert_exact(trajectory, engine)
    assert [step.findings for step in trajectory.steps] == [[]] * 4
    for at in (0, 2):
        assert is_short(*questions[at : at + 2])
        assert_used_the_tool(trajectory, *trajectory.steps[at : at + 2])
    for call in engine.calls:
        assert call.body["messages"][0] == {"role": "system", "content": "Use your tools."}
        assert [tool["function"]["name"] for tool in call.body["tools"]] == ["add"]


def test_a_shell_script_with_curl_is_captured(capture, engine):
    _, trajectory = capture("curl.sh")

    assert_exact(trajectory, engine)
    assert_continued(trajectory.steps)
    assert [message["role"] for message in read_messages(trajectory, trajectory.steps[1])] == [
        "user",
        "assistant",
        "user",
    ]
