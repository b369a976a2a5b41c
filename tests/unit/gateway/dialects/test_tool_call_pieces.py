"""However an engine cuts its tool calls into pieces, record, events, last event and tracer have the same calls."""

import json

import msgspec
import pytest
from hypothesis import assume, given, strategies as st
from openai.lib.streaming._deltas import accumulate_delta

from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat_stream import ChatStream
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.google import EVENT_STREAM, Google
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.schema.wire.streamed_messages import GrowingMessage
from agent_layer.translation.sealed import read_signature
from tracer.integrations.openai import CHAT

ARGUMENTS = ["", "{}", '{"q":"a"}', '{"q": {"deep": [1, 2]}}', '{"q":"}"}', "[1]", "no JSON", "{"]


class ToolCall(msgspec.Struct, frozen=True):
    """One call, and how its engine sends it."""

    index: int | None
    call_id: str
    name: str
    texts: list[str]
    """Of its arguments."""
    repeats_id: bool
    empty: str | None
    """Stands in later pieces where there is no id or name; missing: they have neither."""
    named_late: bool
    """Its name comes with the second piece."""


def make_pieces(call):
    later = {} if call.empty == "missing" else {"id": call.empty}
    unnamed = {} if call.empty == "missing" else {"name": call.empty}
    place = {} if call.index is None else {"index": call.index}
    own = {"id": call.call_id}
    first = {"name": call.name} if not call.named_late else unnamed
    yield {**place, **own, "type": "function", "function": {**first, "arguments": ""}}
    if call.named_late:
        yield {**place, **(own if call.repeats_id else later), "function": {"name": call.name}}
    for text in call.texts:
        yield {**place, **(own if call.repeats_id else later), "function": {**unnamed, "arguments": text}}


@st.composite
def cut_calls(draw):
    """Calls and their pieces. Pieces of parallel calls come in turns where index or id tells them apart."""
    calls = []
    indexing = draw(st.sampled_from(["own", "zero", "none"]))
    for number in range(draw(st.integers(0, 3))):
        text, size = draw(st.sampled_from(ARGUMENTS)), draw(st.integers(1, 5))
        call = ToolCall(
            index={"own": number, "zero": 0, "none": None}[indexing],
            call_id="abc"[number] if draw(st.booleans()) or indexing != "own" else "same",
            name=draw(st.sampled_from(["f", "g"])),
            texts=[text[start : start + size] for start in range(0, len(text), size)],
            repeats_id=draw(st.booleans()),
            empty=draw(st.sampled_from(["missing", "", None])),
            named_late=draw(st.booleans()),
        )
        calls.append(call)
    waiting = [list(make_pieces(call)) for call in calls]
    can_mix = indexing == "own" or all(call.repeats_id for call in calls)
    order = []
    while any(waiting):
        known = [at for at, pieces in enumerate(waiting) if pieces]
        at = draw(st.sampled_from(known)) if can_mix else known[0]
        order.append((at, waiting[at].pop(0)))
    begun = list(dict.fromkeys(at for at, _ in order))
    return [calls[at] for at in begun], [piece for _, piece in order]


def plain(message):
    """(id, name, arguments) of each call."""
    return [
        (one.get("id", ""), one["function"].get("name", ""), one["function"].get("arguments", ""))
        for one in message.get("tool_calls", [])
    ]


def make_stream(pieces, sizes=()):
    """The events of an engine, one piece each, or as many as ``sizes`` says."""
    waiting, sizes = list(pieces), list(sizes)
    deltas = [{"role": "assistant", "content": ""}]
    while waiting:
        size = sizes.pop(0) if sizes else 1
        deltas.append({"tool_calls": waiting[:size]})
        del waiting[:size]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [*events, {"choices": [{"index": 0, "delta": {}, "token_ids": [3], "finish_reason": "tool_calls"}]}]


def ask(dialect, body, events):
    """Return (events of the dialect, message that is recorded)."""
    memory = LRUCache()
    exchange = Exchange(
        request=dialect.read(json.dumps(body).encode(), memory), memory=memory, call_id="c", model="m", at=1
    )
    stream = dialect.stream(exchange)
    sent = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    reported = stream.feed(sent)
    found = [json.loads(line[6:]) for line in reported.split(b"\n") if line.startswith(b"data: {")]
    return found, stream.answer(0).actions[0].message


def calls_of_chat(events):
    """What OpenAI's SDK makes of the events: calls by index."""
    whole = {}
    for event in events:
        whole = accumulate_delta(whole, event["choices"][0]["delta"])
    return [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in whole.get("tool_calls", [])]


def calls_of_messages(events):
    """What Anthropic's SDKs make of the events: blocks by index."""
    blocks = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(blocks)
                blocks[index] = {**block, "text": ""}
            case {"type": "content_block_delta", "index": index, "delta": {"partial_json": text}}:
                assert "ended" not in blocks[index]
                blocks[index]["text"] += text
            case {"type": "content_block_stop", "index": index}:
                blocks[index]["ended"] = True
    assert all("ended" in block for block in blocks.values())
    return [(one["id"], one["name"], one["text"]) for one in blocks.values() if one["type"] == "tool_use"]


def calls_of_responses(events):
    """What OpenAI's SDKs make of the events: items by index."""
    items, done = {}, {}
    for event in events:
        match event:
            case {"type": "response.output_item.added", "output_index": index, "item": item}:
                assert index == len(items)
                items[index] = dict(item)
            case {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}:
                items[index]["arguments"] += text
            case {"type": "response.output_item.done", "output_index": index, "item": item}:
                done[index] = item
    last = events[-1]["response"]["output"]
    assert [done[index] for index in sorted(done)] == last
    streamed = [(one["call_id"], one["name"], one["arguments"]) for one in items.values() if "call_id" in one]
    assert streamed == [(one["call_id"], one["name"], one["arguments"]) for one in last if "call_id" in one]
    return streamed


def calls_of_google(events):
    """What Google's SDKs make of the events: the parts of all; signatures hold the arguments as they were written."""
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    called = [
        (part["functionCall"], read_signature(part["thoughtSignature"])) for part in parts if "functionCall" in part
    ]
    assert all(call["id"] == signature.call_id for call, signature in called)
    return [(call["id"], call["name"], signature.arguments) for call, signature in called]


@given(cut_calls(), st.lists(st.integers(1, 4)))
def test_openais_client_has_the_calls_however_many_pieces_come_at_once(made, sizes):
    calls, pieces = made
    assume(all(call.index == at and not call.repeats_id and call.empty == "missing" for at, call in enumerate(calls)))
    fields = {"messages": [{"role": "user", "content": "x"}], "stream": True}

    shown, recorded = ask(Completions(), fields, make_stream(pieces, sizes))

    assert calls_of_chat(shown) == plain(recorded) == [(one.call_id, one.name, "".join(one.texts)) for one in calls]


@given(cut_calls(), st.lists(st.integers(1, 4)))
def test_all_accounts_of_a_stream_have_the_calls_that_the_model_made(made, sizes):
    calls, pieces = made
    expected = [(call.call_id, call.name, "".join(call.texts)) for call in calls]
    events = make_stream(pieces, sizes)
    fields = {"messages": [{"role": "user", "content": "x"}], "stream": True}

    _, recorded = ask(Completions(), fields, events)
    of_messages, recorded_too = ask(Messages(), {**fields, "max_tokens": 9}, events)
    of_responses, _ = ask(Responses(), {"input": "x", "stream": True}, events)
    of_google, _ = ask(Google(model="m", stream_type=EVENT_STREAM), {"contents": [{"parts": [{"text": "x"}]}]}, events)
    traced = CHAT.read_stream([json.dumps(event) for event in events], is_whole=True).actions[0].message

    assert plain(recorded) == expected
    assert recorded == recorded_too == traced
    assert calls_of_messages(of_messages) == expected
    assert calls_of_responses(of_responses) == expected
    assert calls_of_google(of_google) == expected


@given(st.permutations(["text", "call", "thought", "more text"]))
def test_items_of_a_response_are_those_that_were_streamed(order):
    deltas = {
        "text": {"content": "a"},
        "more text": {"content": "b"},
        "thought": {"reasoning": "c"},
        "call": {"tool_calls": [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{}"}}]},
    }
    events = [{"choices": [{"index": 0, "delta": deltas[name]}]} for name in order]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})

    answer, _ = ask(Responses(), {"input": "x", "stream": True}, events)

    done = [event["item"] for event in answer if event["type"] == "response.output_item.done"]
    assert sorted(done, key=lambda item: item["id"]) == sorted(
        answer[-1]["response"]["output"], key=lambda item: item["id"]
    )


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        (
            [{"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}],
            {"function_call": {"name": "f", "arguments": '{"a":1}'}},
        ),
        (
            [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}],
            {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]},
        ),
        (
            [{"details": [{"index": 0, "text": "a"}]}, {"details": [{"index": 0, "text": "b"}, {"text": "c"}]}],
            {"details": [{"index": 0, "text": "ab"}, {"text": "c"}]},
        ),
        ([{"refusal": None}, {"refusal": "n"}, {"refusal": "o"}], {"refusal": "no"}),
    ],
)
def test_other_members_are_joined_by_their_kind(deltas, expected):
    growing = GrowingMessage()

    for delta in deltas:
        growing.add(delta)

    assert growing.whole() == {"role": "assistant", "content": None, **expected}


def test_a_stream_that_is_cut_has_what_came():
    stream = ChatStream(Completions().read(b'{"messages": []}', LRUCache()))
    piece = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"q'}}
    event = {"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}

    stream.feed(b"data: %b\n\n" % json.dumps(event).encode())

    assert plain(stream.answer(0).actions[0].message) == [("a", "f", '{"q')]
