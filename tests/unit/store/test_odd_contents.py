"""No reader falls over what a foreign agent or engine had stored: every one shows it, beside all that is sound."""

import msgspec
import pytest

from agent_layer.cli.ui.trajectory_text import describe_trajectory, print_rows
from agent_layer.export.spans import make_trace
from agent_layer.export.verl import verl_row
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.ids import content_hash
from agent_layer.schema.step import Action, Observation, StepState
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.arrow.steps import tabulate_steps
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_row, show_step, show_trajectory
from agent_layer.store.text.texts import find_texts
from agent_layer.view.reads.trajectories import step_lines

from ...builders import attempt, call, content

SOUND = b'{"role":"user","content":"what is sound"}'
ODD_MESSAGES = [
    b"null",
    b"3",
    b'"words"',
    b"[1,[2]]",
    b"no json",
    b"\xff\xfe",
    b'{"role":"user","content":"\\ud83d"}',
    b'{"role":["x"],"content":NaN,"name":{"a":1}}',
    b'{"role":"assistant","content":[1,null,"x",{"text":{"a":1}},{"type":["y"]}]}',
    b'{"role":"assistant","tool_calls":"add"}',
    b'{"role":"assistant","tool_calls":[null,"add",{"function":"add"},{"function":null},{"function":{"name":[1]}}]}',
    b'{"role":"assistant","reasoning":{"a":1},"tool_calls":{"id":"c"}}',
    b'{"role":"tool","tool_call_id":{"a":1},"content":{"$content":"gone"}}',
    b"[" * 5_000,
    b"[" * 600 + b"]" * 600,
    b'{"a":' * 400 + b"1" + b"}" * 400,
]


def read_everywhere(records):
    """Take the records through all readers; return what ``show`` prints and what the page gets."""
    stored = [decode(encode(record)) for record in records]
    whole = assemble_trajectory("o.0-0", stored)
    row = TrajectoryRow(trajectory_id="o.0-0")
    shown = show_trajectory(row, whole)
    steps = [{**show_row(row), "step": show_step(whole, step)} for step in whole.steps]
    print_rows(steps)
    lines = step_lines(whole, whole.contents, whole.steps)
    for answer in (shown, lines):
        msgspec.json.decode(msgspec.json.encode(answer))
    list(find_texts(stored))
    make_trace(whole, contents=True)
    verl_row(whole, 0)
    tabulate_steps(whole, contents=True)
    return "\n".join(line for block in describe_trajectory(shown) for line in block.lines), lines


@pytest.mark.parametrize("body", ODD_MESSAGES, ids=lambda body: body[:40].decode("utf-8", "replace"))
def test_an_odd_message_tool_or_state_is_shown(body):
    name, sound = content_hash(body), content_hash(SOUND)
    state = StepState(messages=[sound, name], tools=name, framework=name, environment=name)
    records = attempt("o.0-0", content("o.0-0", SOUND), content("o.0-0", body), *call("o.0-0", state=state))

    text, (line,) = read_everywhere(records)

    assert "user: what is sound" in text
    assert [type(one) for one in line.new_messages] == [dict, dict]
    assert all(isinstance(one, dict) for one in line.new_messages[1].get("tool_calls") or [])


@pytest.mark.parametrize(
    "message",
    [
        {"role": None, "content": None},
        {"content": [[1], {"text": None}, 3]},
        {"role": "assistant", "content": "said", "tool_calls": "add"},
        {"role": "assistant", "tool_calls": [None, {"function": "add"}, {"function": {"arguments": [1]}}, 3]},
        {"role": {"a": 1}, "reasoning_content": [1], "content": {"deep": msgspec.json.decode(b"[" * 700 + b"]" * 700)}},
    ],
)
def test_an_odd_answer_and_an_odd_output_of_a_tool_are_shown(message):
    own = {"trajectory_id": "o.0-0", "run": "r", "observation_id": "o", "name": "look", "at": 3.0}
    seen = Observation(**own, call_id="o.0-0/a", arguments=message, output=message)
    records = attempt("o.0-0", *call("o.0-0", "a", Action(message=message)), seen)

    text, (line,) = read_everywhere(records)

    assert "look(" in text
    assert isinstance(line.message, dict)
    assert all(isinstance(one, dict) for one in line.message.get("tool_calls") or [])
