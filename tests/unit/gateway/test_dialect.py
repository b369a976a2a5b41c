"""What was added for the record is taken out of bodies as they are written, and nothing else is."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.dialects.chat import read_request
from agent_layer.gateway.dialects.chat_answer import read_answer
from agent_layer.gateway.dialects.chat_stream import ChatStream

texts = st.text(max_size=30) | st.sampled_from(
    ['"token_ids":[1]', "}]}", '\\"', '"logprobs": {"content": []}', "[1, 2]"]
)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=4)
separators = st.sampled_from([(",", ":"), (", ", ": ")])


@st.composite
def choices(draw):
    found = draw(ids)
    content = [
        {"token": draw(texts), "logprob": draw(st.floats(-9, 0)), "bytes": [1, 2], "top_logprobs": []} for _ in found
    ]
    return {"text": draw(texts), "token_ids": found, "logprobs": {"content": content}}


def build_request(**fields):
    return read_request(json.dumps({"messages": [], **fields}).encode())


def hidden(value):
    """Return the same JSON with null for fields that the client did not request."""
    names = ("token_ids", "prompt_token_ids", "logprobs")
    if isinstance(value, dict):
        return {name: None if name in names else hidden(one) for name, one in value.items()}
    return [hidden(one) for one in value] if isinstance(value, list) else value


@given(st.lists(choices(), min_size=1, max_size=3), ids, separators, st.booleans())
def test_a_whole_answer(found, prompt, separators, wants):
    body = {
        "choices": [
            {
                "index": index,
                "message": {"content": one["text"]},
                "token_ids": one["token_ids"],
                "logprobs": one["logprobs"],
            }
            for index, one in enumerate(found)
        ],
        "prompt_token_ids": prompt,
    }

    answer = read_answer(
        json.dumps(body, separators=separators).encode(), build_request(logprobs=wants, return_token_ids=wants), 3
    )

    assert json.loads(answer.body) == (body if wants else hidden(body))
    assert list(answer.prompt_token_ids) == prompt
    assert [list(action.response_token_ids) for action in answer.actions] == [one["token_ids"] for one in found]
    assert [len(action.logprobs) for action in answer.actions] == [len(one["token_ids"]) for one in found]


@given(st.lists(choices(), max_size=6), ids, separators, st.integers(1, 40), st.booleans())
def test_a_stream_cut_anywhere(found, prompt, separators, size, wants):
    events = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}], "prompt_token_ids": prompt}]
    for one in found:
        delta = {"content": one["text"]}
        events.append({"choices": [{"index": 0, "delta": delta, **{n: one[n] for n in ("token_ids", "logprobs")}}]})
    written = b"".join(b"data: %b\n\n" % json.dumps(event, separators=separators).encode() for event in events)
    written += b"data: [DONE]\n\n"
    stream = ChatStream(build_request(logprobs=wants, return_token_ids=wants))

    seen = b"".join(stream.feed(written[start : start + size]) for start in range(0, len(written), size))

    lines = [line[6:] for line in seen.split(b"\n\n")[:-1]]
    assert lines.pop() == b"[DONE]"
    assert [json.loads(line) for line in lines] == (events if wants else hidden(events))
    answer = stream.answer(3)
    assert stream.is_done
    assert stream.error is None
    assert list(answer.prompt_token_ids) == prompt
    assert answer.actions[0].message["content"] == ("".join(one["text"] for one in found) if found else None)
    assert list(answer.actions[0].response_token_ids or []) == [token for one in found for token in one["token_ids"]]


def test_a_stream_is_complete_when_as_many_choices_ended_as_were_asked_for():
    stream = ChatStream(build_request(n=2), num_choices=2)
    seen = []
    for index in (0, 1):
        event = {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        stream.feed(b"data: %b\n\n" % json.dumps(event).encode())
        stream.answer(0)
        seen.append(stream.is_complete)

    assert seen == [False, True]


def test_tool_calls_add_up_by_index():
    stream = ChatStream(build_request())
    for calls in (
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x"'}}, {"index": 1, "id": "b", "function": {"name": "g"}}],
        [{"index": 0, "function": {"arguments": ": 1}"}}],
    ):
        event = {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
        stream.feed(b"data: %b\n\n" % json.dumps(event).encode())

    assert stream.answer(0).actions[0].message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "b", "function": {"name": "g"}},
    ]


@pytest.mark.parametrize("line", [b": ping", b"event: x", b"data: {broken"])
def test_what_is_no_event_passes_through(line):
    stream = ChatStream(build_request())

    assert stream.feed(line + b"\n\n") == line + b"\n\n"
