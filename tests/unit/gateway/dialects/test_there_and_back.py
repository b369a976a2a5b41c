"""What a client sends back of what it was sent is what the model said: translating both ways changes nothing."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import read_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, build_action
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.dialects.stream import join_blocks, split_blocks
from agent_layer.schema.record import TokenIds

from ..talking import Talk

numbers = st.integers(-9, 9) | st.floats(-9, 9)
values = st.recursive(
    numbers | st.text(max_size=5) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
layouts = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}, {"sort_keys": True}])
objects = st.builds(
    lambda value, layout: json.dumps(value, **layout), st.dictionaries(st.text(max_size=3), values), layouts
)
arguments = objects | st.sampled_from(["", "{", '{"a": 1e5}', '{"a": 1, "a": 2}', "[1]", '{ "x" :"\\u00e4"}', "no"])


@st.composite
def answers(draw, prefix="c"):
    """An assistant message as an engine sends it; ids of its tool calls begin with the prefix."""
    wanted = draw(st.lists(arguments, max_size=3))
    calls = [
        {
            "id": f"{prefix}{at}",
            "type": "function",
            "function": {"name": draw(st.sampled_from("fg")), "arguments": one},
        }
        for at, one in enumerate(wanted)
    ]
    text = draw(st.text(max_size=12))
    message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if thought := draw(st.text(max_size=8)):
        message["reasoning"] = thought
    return message | ({"tool_calls": calls} if calls else {})


def find_answer(message):
    return ChatAnswer(
        body=b"", prompt_token_ids=TokenIds([1, 2]), actions=[build_action(message, TokenIds([3]), None, "stop", 0)]
    )


def make_exchange(dialect, body, call_id="call-1", num_choices=1, memory=None):
    memory = memory or LRUCache()
    return Exchange(
        request=dialect.read(json.dumps(body).encode(), memory),
        memory=memory,
        call_id=call_id,
        model="m",
        at=1,
        num_choices=num_choices,
    )


def canonical(message):
    return join_blocks(split_blocks(message))


@given(answers(), answers())
def test_responses(first, second):
    talk, questions = Talk(), [{"role": "user", "content": "hi"}]
    for message in (first, second):
        _, answer, _ = talk.ask("responses", {"input": questions}, message)
        questions += [*answer["output"], {"role": "user", "content": "go on"}]

    user = {"role": "user", "content": "go on"}
    read, _, _ = talk.ask("responses", {"input": questions}, first)
    assert read[1:] == [canonical(first), user, canonical(second), user]


@given(answers(), answers("d"))
def test_responses_that_name_the_one_before(first, second):
    talk, before = Talk(), None
    for number, message in enumerate((first, second)):
        body = {"input": f"turn {number}", "previous_response_id": before, "instructions": f"be {number}"}
        before = talk.ask("responses", body, message)[1]["id"]

    read, _, _ = talk.ask("responses", {"input": "end", "previous_response_id": before}, first)
    users = [{"role": "user", "content": text} for text in ("turn 0", "turn 1", "end")]
    assert read == [users[0], canonical(first), users[1], canonical(second), users[2]]


@given(answers(), answers(), st.booleans())
def test_messages(first, second, is_sorted):
    talk, questions = Talk(), [{"role": "user", "content": "hi"}]
    for message in (first, second):
        _, answer, _ = talk.ask("messages", {"messages": questions}, message)
        echoed = json.loads(json.dumps(answer["content"], sort_keys=is_sorted))  # a client's own order of keys
        questions += [{"role": "assistant", "content": echoed}, {"role": "user", "content": "go on"}]

    read, _, _ = talk.ask("messages", {"messages": questions}, first)
    assert read[1::2] == [canonical(first), canonical(second)]


def test_an_input_that_the_client_changed_is_what_it_sent():
    talk, question = Talk(), {"role": "user", "content": "hi"}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    talk.ask("messages", {"messages": [question]}, {"role": "assistant", "content": None, "tool_calls": [call]})

    for value, text in (({"a": 1}, '{"a":1}'), ({"a": 2}, '{"a": 2}')):
        block = {"type": "tool_use", "id": "c", "name": "f", "input": value}
        body = {"messages": [question, {"role": "assistant", "content": [block]}]}
        (_, message), _, _ = talk.ask("messages", body, {"role": "assistant", "content": ""})
        assert message["tool_calls"][0]["function"]["arguments"] == text


def read_chunks(message, size):
    """Cut a message into the deltas of a stream."""
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning", "content"):
        text = message.get(name) or ""
        yield from ({name: text[start : start + size]} for start in range(0, len(text), size))
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]}
        for start in range(0, len(function["arguments"]), size):
            piece = function["arguments"][start : start + size]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def streamed(dialect, exchange, message, size):
    """Send a message as a stream, cut anywhere; give the events of the dialect and the stream."""
    events = [{"choices": [], "prompt_token_ids": [1, 2]}]
    events += [{"choices": [{"index": 0, "delta": delta}]} for delta in read_chunks(message, size)]
    events.append({"choices": [{"index": 0, "delta": {}, "token_ids": [3], "finish_reason": "stop"}]})
    sent = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    stream = dialect.stream(exchange)
    seen = b"".join(stream.feed(sent[start : start + 7 * size]) for start in range(0, len(sent), 7 * size))
    reported = [event.split(b"\n") for event in seen.split(b"\n\n")[:-1]]
    found = [json.loads(line[6:]) for _, line in reported]
    assert [name[7:].decode() for name, _ in reported] == [event["type"] for event in found]
    return found, stream


@given(answers(), st.integers(1, 5), st.sampled_from([{}, {"include": ["reasoning.encrypted_content"]}]))
def test_a_streamed_response_is_the_whole_one(message, size, more):
    dialect = Responses()
    exchange = make_exchange(dialect, {"input": "hi", "stream": True, "temperature": 0.5, **more})

    events, stream = streamed(dialect, exchange, message, size)

    whole = json.loads(dialect.write(find_answer(message), exchange))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events].index("response.completed") == len(events) - 1
    assert events[-1]["response"] == whole
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == whole["output"]
    deltas = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
    assert "".join(deltas.values()) == "".join(block.text for block in split_blocks(message))
    assert canonical(stream.answer(0).actions[0].message) == canonical(message)


@given(answers(), st.integers(1, 5), st.sampled_from([{}, {"thinking": {"type": "adaptive", "display": "omitted"}}]))
def test_a_streamed_message_is_the_whole_one(message, size, more):
    dialect = Messages()
    exchange = make_exchange(
        dialect, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": True, **more}
    )

    events, stream = streamed(dialect, exchange, message, size)

    grown = []
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(grown)
                grown.append({**block, "input": ""} if block["type"] == "tool_use" else block)
            case {"type": "content_block_delta", "delta": {"type": _, **delta}}:
                ((name, text),) = delta.items()
                grown[-1][{"partial_json": "input"}.get(name, name)] += text
    whole = json.loads(dialect.write(find_answer(message), exchange))
    shown = [{**block, "input": parse_input(block["input"])} if "input" in block else block for block in grown]
    assert shown == whole["content"]
    end = events[-2]
    assert (end["delta"]["stop_reason"], end["usage"]) == (whole["stop_reason"], whole["usage"])
    assert events.index({"type": "message_stop"}) == len(events) - 1
    assert canonical(stream.answer(0).actions[0].message) == canonical(message)


def parse_input(text):
    """What an SDK makes of the pieces of a tool's input; here, what is no object is empty."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def test_a_conversation_that_is_longer_than_the_largest_body_is_forgotten_from_its_beginning():
    talk = Talk()
    talk.memory._max_bytes = 800
    for number in range(20):
        talk.ask("responses", {"input": f"{number}" * 50}, {"role": "assistant", "content": "y"})

    last, _, _ = talk.ask("responses", {"input": "", "previous_response_id": "resp_call-19"}, {"content": "z"})
    assert len(last) == 3
    with pytest.raises(RefusedError, match="not remembered"):
        talk.ask("responses", {"input": "", "previous_response_id": "resp_call-0"}, {"content": "z"})


def test_the_internal_form_is_read_as_it_comes():
    body = b'{"messages":[{"role":"user","content":"hi"}],"x":[1, 2]}'

    assert bytes(read_request(body).messages[0]) == b'{"role":"user","content":"hi"}'
