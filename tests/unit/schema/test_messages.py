"""Message logs: each answer becomes a step, and other files are refused."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.ingest.messages import ImportBatch, line_trajectory_id, make_records
from agent_layer.ingest.spans import read_line
from agent_layer.schema.codec import encode
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.reading.display import show_step

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
TALK = {
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "on the shelf"},
        {"role": "assistant", "content": "on the shelf", "weight": 0},
    ],
    "tools": [{"type": "function", "function": {"name": "look"}}],
    "reward": 0.5,
    "model": "m",
    "metadata": {"user": "u", "turn": 3},
    "id": "talk-1",
    "note": "kept",
}
BATCH = ImportBatch(run="r", at=1_000.0)


def make_trajectory(fields, batch=BATCH):
    line = json.dumps(fields).encode()
    trajectory_id = line_trajectory_id(line, batch.run)
    return assemble_trajectory(trajectory_id, make_records(read_line(line, "line 1"), trajectory_id, batch))


def test_each_answer_is_a_step_of_text_with_what_came_before_as_its_state():
    trajectory = make_trajectory(TALK)

    first, second = (show_step(trajectory, step) for step in trajectory.steps)

    assert first["state"]["messages"] == TALK["messages"][:2]
    assert second["state"]["messages"] == TALK["messages"][:4]
    assert first["state"]["tools"] == TALK["tools"]
    assert (first["action"]["message"], second["action"]["message"]) == (TALK["messages"][2], TALK["messages"][4])
    assert {(step.capture_level, step.status, step.model) for step in trajectory.steps} == {("text", "ok", "m")}
    assert [step.role for step in trajectory.steps] == ["policy", "aux"]
    [observation] = first["observations"]
    assert (observation["name"], observation["arguments"], observation["output"]) == ("look", {"a": 1}, "on the shelf")


def test_everything_else_of_the_line_is_kept():
    trajectory = make_trajectory(TALK)

    assert trajectory.reward == 0.5
    assert trajectory.started.labels == {"user": "u", "turn": "3", "id": "talk-1"}
    assert trajectory.outcome.details == {"note": "kept"}
    assert trajectory.started.task.input == TALK["messages"][:2]
    assert trajectory.started.started_at == 1_000.0


def test_conversations_that_begin_alike_are_tries_at_one_task():
    other = {**TALK, "messages": [*TALK["messages"][:2], {"role": "assistant", "content": "lost"}]}

    assert make_trajectory(TALK).started.task_id == make_trajectory(other).started.task_id
    assert make_trajectory(TALK).trajectory_id != make_trajectory(other).trajectory_id
    assert make_trajectory({**TALK, "task_id": "t"}).started.task_id == "t"


def test_a_call_with_its_answer_is_one_step_for_each_choice():
    choices = [
        {"index": n, "message": {"role": "assistant", "content": str(n)}, "finish_reason": "stop"} for n in range(2)
    ]
    trajectory = make_trajectory(
        {
            "request": {"model": "asked", "messages": TALK["messages"], "temperature": 0.7, "tools": TALK["tools"]},
            "response": {
                "model": "answered",
                "created": 5_000,
                "choices": choices,
                "usage": {"prompt_tokens": 7, "completion_tokens": 2},
            },
            "reward": {"right": 1, "short": None},
        }
    )

    assert [step.action.message["content"] for step in trajectory.steps] == ["0", "1"]
    assert {len(step.state.messages) for step in trajectory.steps} == {5}
    [step, _] = trajectory.steps
    assert (step.model, step.sampling_asked, step.usage.prompt_tokens) == ("answered", {"temperature": 0.7}, 7)
    assert (trajectory.started.started_at, trajectory.reward) == (5_000.0, 1.0)
    assert [reward.name for reward in trajectory.rewards] == ["right"]


def test_the_same_line_becomes_the_same_records():
    line = json.dumps(TALK).encode()
    once, again = (
        make_records(read_line(one, "x"), line_trajectory_id(one, "r"), BATCH) for one in (line, line + b"\n")
    )

    assert [encode(record) for record in once] == [encode(record) for record in again]
    assert line_trajectory_id(line, "r") != line_trajectory_id(line, "s")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "a JSON object"),
        (b"[]", "found list"),
        (b'{"messages": []}', "'messages', a list of objects"),
        (b'{"messages": [1]}', "'messages', a list of objects"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "at least one message of the assistant"),
        (b'{"messages": [{"role": "robot"}]}', "a role .* in message 0"),
        (b'{"messages": [{"role": "assistant", "content": 3}]}', "content of message 0"),
        (b'{"messages": [{"role": "assistant", "content": "x"}], "reward": "good"}', "'reward'"),
        (b'{"messages": [{"role": "assistant", "content": "x"}], "created": 1e15}', "'created'"),
        (b'{"messages": [{"role": "assistant", "content": "x"}], "task_id": "a b"}', "line 4: task_id"),
        (b'{"request": {"messages": [{"role": "user", "content": "x"}]}, "response": {"id": 1}}', "line 4: choices"),
        (b'{"messages": [{"role": "assistant", "n": 123456789012345678901234567890}]}', "64 bits"),
    ],
)
def test_what_is_no_log_of_messages_is_refused_by_its_number(line, message):
    with pytest.raises(BadInputError, match=message) as refused:
        read_line(line, "log line 4")

    assert str(refused.value).startswith("log line 4")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"])},
    optional={"content": values, "tool_calls": values, "name": values, "tool_call_id": values, "weight": values},
)


@given(
    st.fixed_dictionaries(
        {"messages": st.lists(messages, max_size=4)},
        optional=dict.fromkeys(("reward", "created", "metadata", "id", "task_id", "tools", "response", "x"), values),
    )
)
def test_any_line_is_a_trajectory_or_is_refused(fields):
    try:
        trajectory = make_trajectory(fields)
    except BadInputError:
        return

    for step in trajectory.steps:
        json.dumps(show_step(trajectory, step))
    assert len(trajectory.steps) >= 1
