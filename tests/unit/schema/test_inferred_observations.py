"""What tools answered is read from the next prompt where no layer saw the tools run."""

import msgspec
import pytest

from agent_layer.schema.ids import content_hash
from agent_layer.schema.step import Action, Content, Observation, StepState
from agent_layer.schema.trajectory import assemble_trajectory, infer_observations

from ...builders import call

NAME = "r.0-0"
QUESTION = {"role": "user", "content": "2 + 2?"}


def tool_call(name="c1", tool="add", arguments='{"a": 2, "b": 2}'):
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def answer(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def tool_message(text, name="c1"):
    return {"role": "tool", "tool_call_id": name, "content": text}


def turns(*turns, extra=()):
    """Each turn: the messages of its prompt, and the message that the model answered."""
    records = list(extra)
    for number, (messages, reply) in enumerate(turns):
        bodies = [msgspec.json.encode(message) for message in messages]
        hashes = [content_hash(body) for body in bodies]
        records += [Content(trajectory_id=NAME, hash=one, body=body) for one, body in zip(hashes, bodies, strict=True)]
        records += call(NAME, str(number), Action(message=reply), at=10.0 * number, state=StepState(messages=hashes))
    return assemble_trajectory(NAME, records)


def seen(trajectory):
    return [(one.call_id, one.name, one.arguments, one.output) for one in trajectory.observations]


def test_each_tool_message_is_an_observation_of_the_step_that_asked():
    first, second = answer(tool_call(), tool_call("c2", "look", "not JSON")), answer(tool_call("c3", "add", "{}"))
    prompt = [
        QUESTION,
        first,
        tool_message("4"),
        tool_message([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "c2"),
    ]

    trajectory = turns(([QUESTION], first), (prompt, second), ([*prompt, second, tool_message("5", "c3")], answer()))

    assert seen(trajectory) == [
        (f"{NAME}/0", "add", {"a": 2, "b": 2}, "4"),
        (f"{NAME}/0", "look", "not JSON", "ab"),
        (f"{NAME}/1", "add", {}, "5"),
    ]
    assert [one.at for one in trajectory.observations] == [10.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("name", "call_id"), [("add", f"{NAME}/0"), ("CalcEnv", f"{NAME}/0"), ("add", "a span's own"), ("add", None)]
)
def test_a_tool_that_a_layer_saw_is_not_seen_twice(name, call_id):
    ran = Observation(trajectory_id=NAME, observation_id="o", run="r", name=name, at=5.0, call_id=call_id, output="4")
    first = answer(tool_call())

    trajectory = turns(([QUESTION], first), ([QUESTION, first, tool_message("4")], answer()), extra=[ran])

    assert [(one.name, one.output) for one in trajectory.observations] == [(name, "4")]


def test_an_id_that_a_model_uses_again_never_means_an_earlier_answer():
    first, second = answer(tool_call()), answer(tool_call(tool="look"))
    prompt = [QUESTION, first, tool_message("4")]

    trajectory = turns(
        ([QUESTION], first), (prompt, second), (prompt, answer()), ([*prompt, second, tool_message("a bird")], answer())
    )

    assert [(one.name, one.output) for one in trajectory.observations] == [("add", "4"), ("look", "a bird")]


def test_a_tool_that_failed_without_an_answer_hides_no_later_one():
    prompts = [[QUESTION]]
    for text in ("Error:\nboom", "Observation:\n5", "Observation:\n6"):
        message = {"role": "assistant", "content": "Calling tools"}
        prompts.append([*prompts[-1], message, {"role": "user", "content": text}])

    trajectory = turns(*((prompt, answer(tool_call(f"c{at}"))) for at, prompt in enumerate(prompts)))

    assert [one.output for one in trajectory.observations] == ["5", "6"]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (b'{"role": "tool", "tool_call_id": "c1", "content": "\\ud800"}', ["\\ud800"]),
        (b'{"role": "tool", "tool_call_id": "c1", "content": "4', []),
    ],
)
def test_a_message_that_is_no_json_is_passed_over(body, outputs):
    trajectory, name = turns(([QUESTION], answer(tool_call()))), content_hash(body)
    (asking,) = trajectory.steps
    later = msgspec.structs.replace(asking, call_id="b", state=StepState(messages=[*asking.state.messages, name]))

    found = infer_observations([asking, later], {**trajectory.contents, name: body}, [])
    assert [one.output for one in found] == outputs


@pytest.mark.parametrize("message", ["Observation:\n4", [{"type": "text", "text": "Observation:\n4"}]])
def test_a_framework_without_tool_messages_says_what_it_observed(message):
    prompt = [QUESTION, {"role": "assistant", "content": "Calling tools: add"}, {"role": "user", "content": message}]

    trajectory = turns(([QUESTION], answer(tool_call())), (prompt, answer()))

    assert seen(trajectory) == [(f"{NAME}/0", "add", {"a": 2, "b": 2}, "4")]


def test_one_observed_text_for_two_tools_is_nobodys():
    prompt = [QUESTION, {"role": "user", "content": "Observation:\n4"}]

    assert seen(turns(([QUESTION], answer(tool_call(), tool_call("c2"))), (prompt, answer()))) == []


def test_a_tool_whose_answer_no_prompt_shows_is_not_observed():
    assert seen(turns(([QUESTION], answer(tool_call())))) == []
