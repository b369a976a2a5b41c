"""What tools answered is read from the next prompt where no layer saw the tools run."""

import msgspec
import pytest

from agent_layer.schema.ids import content_hash
from agent_layer.schema.step import Action, Content, Observation, StepState
from agent_layer.schema.trajectory import assemble_trajectory

from ...builders import call

NAME = "r.0-0"
QUESTION = {"role": "user", "content": "2 + 2?"}


def tool_call(name="c1", tool="add", arguments='{"a": 2, "b": 2}'):
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def answer(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def told(text, name="c1"):
    return {"role": "tool", "tool_call_id": name, "content": text}


def turns(*turns, extra=()):
    """Each turn: the messages of its prompt, and the message that the model answered."""
    records = list(extra)
    for number, (messages, said) in enumerate(turns):
        bodies = [msgspec.json.encode(message) for message in messages]
        hashes = [content_hash(body) for body in bodies]
        records += [Content(trajectory_id=NAME, hash=one, body=body) for one, body in zip(hashes, bodies, strict=True)]
        records += call(NAME, str(number), Action(message=said), at=10.0 * number, state=StepState(messages=hashes))
    return assemble_trajectory(NAME, records)


def seen(trajectory):
    return [(one.call_id, one.name, one.arguments, one.output) for one in trajectory.observations]


def test_each_tool_message_is_an_observation_of_the_step_that_asked():
    first, second = answer(tool_call(), tool_call("c2", "look", "not JSON")), answer(tool_call("c3", "add", "{}"))
    prompt = [QUESTION, first, told("4"), told([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "c2")]

    trajectory = turns(([QUESTION], first), (prompt, second), ([*prompt, second, told("5", "c3")], answer()))

    assert seen(trajectory) == [
        (f"{NAME}/0", "add", {"a": 2, "b": 2}, "4"),
        (f"{NAME}/0", "look", "not JSON", "ab"),
        (f"{NAME}/1", "add", {}, "5"),
    ]
    assert [one.at for one in trajectory.observations] == [10.0, 10.0, 20.0]


def test_a_tool_that_a_layer_saw_is_not_seen_twice():
    first = answer(tool_call(), tool_call("c2", "look"))
    ran = Observation(
        trajectory_id=NAME, observation_id="o", run="r", name="add", at=5.0, call_id=f"{NAME}/0", output=4
    )

    trajectory = turns(([QUESTION], first), ([QUESTION, first, told("4"), told("x", "c2")], answer()), extra=[ran])

    assert [(one.name, one.output) for one in trajectory.observations] == [("add", 4), ("look", "x")]


def test_an_id_that_a_model_uses_again_means_its_last_answer():
    first, second = answer(tool_call()), answer(tool_call(tool="look"))
    prompt = [QUESTION, first, told("4")]

    trajectory = turns(([QUESTION], first), (prompt, second), ([*prompt, second, told("a bird")], answer()))

    assert [(one.name, one.output) for one in trajectory.observations] == [("add", "4"), ("look", "a bird")]


@pytest.mark.parametrize("said", ["Observation:\n4", [{"type": "text", "text": "Observation:\n4"}]])
def test_a_framework_without_tool_messages_says_what_it_observed(said):
    prompt = [QUESTION, {"role": "assistant", "content": "Calling tools: add"}, {"role": "user", "content": said}]

    trajectory = turns(([QUESTION], answer(tool_call())), (prompt, answer()))

    assert seen(trajectory) == [(f"{NAME}/0", "add", {"a": 2, "b": 2}, "4")]


def test_one_observed_text_for_two_tools_is_nobodys():
    prompt = [QUESTION, {"role": "user", "content": "Observation:\n4"}]

    assert seen(turns(([QUESTION], answer(tool_call(), tool_call("c2"))), (prompt, answer()))) == []


def test_a_tool_whose_answer_no_prompt_shows_is_not_observed():
    assert seen(turns(([QUESTION], answer(tool_call())))) == []
