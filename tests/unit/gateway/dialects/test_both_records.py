"""What a gateway records of a call, and what the tracer records of the same call, are the same.

What differs is inherent, and only this: token ids, log-probabilities and applied sampling (``not_applied``), which a
gateway alone knows; an engine's reason to stop where a dialect has a word for several (tools were called, the answer
broke off); the spelling of arguments that Messages shows as an object; members of a message that have one spelling in
the dialects (``reasoning_content``, ``refusal``, nulls).
"""

import json
import random

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import AgentLayerError
from agent_layer.gateway.calls.end_parts import _count_usage
from agent_layer.gateway.dialects.base import LRUCache
from agent_layer.gateway.dialects.chat_answer import (
    ChatAnswer,
    EngineUsage,
    PromptDetails,
    ResponseDetails,
    build_action,
)
from agent_layer.gateway.dialects.google import EVENT_STREAM, Google
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.schema import StepPart, TokenIds, Usage, decode, encode, mend_surrogates
from tracer.integrations.translated import MESSAGES, RESPONSES, google_dialect

from .test_odd_members import BODIES, CALL, ODD, change, find_paths
from .test_there_and_back import answers, canonical, make_exchange, parse_input, read_chunks

DIALECTS = {
    "responses": (Responses(), RESPONSES),
    "messages": (Messages(), MESSAGES),
    "google": (Google(model="m"), google_dialect("m", is_streamed=False)),
}
STREAMED = {**DIALECTS, "google": (Google(model="m", stream_type=EVENT_STREAM), google_dialect("m", is_streamed=True))}
SEALED = {
    "responses": {"include": ["reasoning.encrypted_content"]},
    "messages": {"thinking": {"type": "adaptive", "display": "omitted"}},
    "google": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
}
QUESTION = {
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "google": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def record_both(name, body):
    """Record a request on both ways, and return (gateway's request, tracer's)."""
    dialect, traced = DIALECTS[name]
    mended = mend_surrogates(json.dumps(body).encode())
    return dialect.read(mended, LRUCache()), traced.read_request(body | ({"model": "m"} if name == "google" else {}))


def check_equal(name, body):
    request, traced = record_both(name, body)
    assert traced.messages == [json.loads(bytes(one)) for one in request.messages]
    assert traced.tools == (None if request.tools is None else json.loads(bytes(request.tools)))
    assert traced.sampling == request.sampling_asked
    found = {finding.removeprefix("not_recorded:") for finding in traced.findings} - {"lone_surrogates"}
    assert found <= set(request.not_applied)
    return request, traced


@pytest.mark.parametrize("name", DIALECTS)
def test_odd_requests_are_recorded_alike_and_those_that_a_gateway_refuses_are_recorded_all_the_same(name):
    paths = [path for path in find_paths(BODIES[name]) if path]
    num_equal = 0
    for path in paths:
        for odd in ("del", *random.Random(f"{path}").sample(ODD, 4)):
            body = change(BODIES[name], path, odd)
            try:
                DIALECTS[name][0].read(mend_surrogates(json.dumps(body).encode()), LRUCache())
            except (AgentLayerError, RefusedError):
                traced = DIALECTS[name][1].read_request(body)
                assert traced.messages is not None
                continue
            check_equal(name, body)
            num_equal += 1

    assert num_equal > len(paths)


REQUESTS = {
    "responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "half \ud83d"}]},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,aaaa"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "sealed by others"},
            {"type": "function_call", "call_id": "a", "name": "find", "namespace": "crm", "arguments": " {}"},
            {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "x"},
            {"type": "function_call_output", "call_id": "a", "output": "r"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "s"}]},
        ],
        "instructions": "be brief",
        "tools": [
            {"type": "custom", "name": "patch"},
            {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]},
            {"type": "web_search"},
        ],
        "truncation": "auto",
        "metadata": {"a": "b"},
        "temperature": 0.5,
    },
    "messages": {
        "system": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "half \ud83d", "cache_control": {}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "sealed by others"},
                    {"type": "redacted_thinking", "data": "sealed by others"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "\u00e4"}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "r", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "s"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}},
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aa"}},
                ],
            },
        ],
        "tools": [{"type": "bash_20250124", "name": "bash"}, {"type": "web_search_20250305", "name": "w"}],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "max_tokens": 9,
    },
    "google": {
        "contents": [
            {"role": "user", "parts": [{"text": "half \ud83d"}, {"inline_data": {"mime_type": "a/b", "data": "-_"}}]},
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "sealed by others"},
                    {"functionCall": {"name": "f", "args": {}, "id": "b"}},
                ],
            },
            {"parts": [{"functionResponse": {"name": "f", "response": {"output": "r"}}}]},
            {"parts": [{"functionResponse": {"id": "b", "name": "f", "response": {"a": 1}}}]},
        ],
        "system_instruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [{"name": "f", "response": {"type": "OBJECT"}}]}, {"googleSearch": {}}],
        "generationConfig": {"topK": 4.0, "responseModalities": ["IMAGE"]},
        "safetySettings": [],
    },
}
LACKING = {
    "responses": ["tools.namespace", "tools.web_search", "encrypted_content"],
    "messages": ["tools.web_search_20250305", "thinking.signature", "redacted_thinking", "is_error"],
    "google": [
        "contents.parts.thoughtSignature",
        "functionDeclarations.response",
        "generationConfig.responseModalities",
        "tools.googleSearch",
    ],
}


@pytest.mark.parametrize("name", DIALECTS)
def test_tools_by_type_sealed_reasoning_media_and_half_characters_are_recorded_alike_and_losses_named(name):
    _, traced = check_equal(name, REQUESTS[name])

    assert traced.findings == [f"not_recorded:{one}" for one in (*LACKING[name], "lone_surrogates")]
    assert {"role": "system", "content": "be brief"} in [
        {"role": one["role"], "content": plain(one["content"])} for one in traced.messages
    ]


def plain(content):
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content


FOREIGN = {
    "responses": ({"input": [{"type": "web_search_call", "id": "w"}, {"role": "user", "content": "q"}]}, "items"),
    "messages": (
        {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}]}], "max_tokens": 9},
        "messages.server_tool_use",
    ),
    "google": ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://a/b"}}]}]}, "contents.parts.fileData"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_what_only_another_partys_servers_know_is_refused_by_a_gateway_and_named_by_the_tracer(name):
    dialect, traced = DIALECTS[name]
    body, lost = FOREIGN[name]

    with pytest.raises(AgentLayerError):
        dialect.read(json.dumps(body).encode(), LRUCache())

    assert [finding.startswith(f"not_recorded:{lost}") for finding in traced.read_request(body).findings] == [True]


def find_engine_answer(message, reason):
    usage = EngineUsage(7, 3, PromptDetails(cached_tokens=2), ResponseDetails(reasoning_tokens=1))
    action = build_action(message, TokenIds([3]), None, reason, 0)
    return ChatAnswer(body=b"", prompt_token_ids=TokenIds([1, 2]), actions=[action], usage=usage)


def write_engine_stream(message, size, reason):
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    events = [{"choices": [], "prompt_token_ids": [1, 2]}]
    events += [{"choices": [{"index": 0, "delta": delta}]} for delta in read_chunks(message, size)]
    events.append({"choices": [{"index": 0, "delta": {}, "token_ids": [3], "finish_reason": reason}], "usage": usage})
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def respell(message, name, *, is_streamed):
    """Return an engine's message as a dialect can say it, see above."""
    spoken = canonical(message)
    for call in spoken.get("tool_calls", []) if name == "messages" else []:
        written = call["function"]["arguments"]
        if not is_streamed:
            call["function"]["arguments"] = json.dumps(parse_input(written), ensure_ascii=False)
        elif not written:
            call["function"]["arguments"] = "{}"
    return spoken


reasons = st.sampled_from(["stop", "length", "content_filter"])


def check_answer(traced, message, reason, name, *, is_streamed):
    expected = respell(message, name, is_streamed=is_streamed)
    (action,) = traced.actions
    assert action.message == expected
    assert action.finish_reason == ("tool_calls" if reason == "stop" and expected.get("tool_calls") else reason)
    assert (traced.usage, traced.status, traced.findings) == (
        Usage(prompt_tokens=7, response_tokens=3, cached_tokens=2),
        "ok",
        [],
    )


@pytest.mark.parametrize("name", DIALECTS)
@given(answers(), reasons, st.booleans())
def test_a_whole_answer_is_the_same_message_to_both(name, message, reason, is_sealed):
    dialect, traced = DIALECTS[name]
    exchange = make_exchange(dialect, QUESTION[name] | (SEALED[name] if is_sealed else {}))

    written = dialect.write(find_engine_answer(message, reason), exchange)

    check_answer(traced.read_answer(written), message, reason, name, is_streamed=False)


@pytest.mark.parametrize("name", DIALECTS)
@given(answers(), reasons, st.booleans(), st.integers(1, 5), st.floats(0, 1))
def test_a_streamed_answer_is_the_same_message_to_both_and_a_cut_one_its_beginning(
    name, message, reason, is_sealed, size, cut
):
    dialect, traced = STREAMED[name]
    exchange = make_exchange(dialect, {**QUESTION[name], "stream": True, **(SEALED[name] if is_sealed else {})})

    seen = dialect.stream(exchange).feed(write_engine_stream(message, size, reason))

    events = [line[6:].decode() for line in seen.splitlines() if line.startswith(b"data: ")]
    check_answer(traced.read_stream(events, is_whole=name != "google"), message, reason, name, is_streamed=True)
    assert [traced.is_last(event) for event in events[:-1]] == [False] * (len(events) - 1)
    part = traced.read_stream(events[: int(cut * (len(events) - 2))], is_whole=False)
    assert part.status == "aborted"
    for action in part.actions or ():
        assert (canonical(message)["content"] or "").startswith(action.message["content"] or "")


def choose_changes(value):
    for path in (path for path in find_paths(value) if path):
        yield from ((path, odd) for odd in ("del", *random.Random(f"{path}").sample(ODD, 2)))


@pytest.mark.parametrize("name", DIALECTS)
def test_answers_of_odd_members_are_recorded_and_never_an_error_of_the_agents(name):
    message = {"role": "assistant", "content": "c", "reasoning": "r", "tool_calls": [CALL]}
    (dialect, traced), (streaming, _) = DIALECTS[name], STREAMED[name]
    whole = json.loads(dialect.write(find_engine_answer(message, "stop"), make_exchange(dialect, QUESTION[name])))
    exchange = make_exchange(streaming, {**QUESTION[name], "stream": True})
    seen = streaming.stream(exchange).feed(write_engine_stream(message, 9, "stop"))
    events = [json.loads(line[6:]) for line in seen.splitlines() if line.startswith(b"data: ")]

    recorded = [traced.read_answer(b"<html>"), traced.read_stream(["<html>"], is_whole=False)]
    changed = [change(whole, path, odd) for path, odd in choose_changes(whole)]
    recorded += [traced.read_answer(json.dumps(one).encode()) for one in changed]
    changed = [change(events, path, odd) for path, odd in choose_changes(events)]
    recorded += [traced.read_stream(map(json.dumps, one), is_whole=False) for one in changed]

    for answer in recorded:
        part = StepPart(
            trajectory_id="t", call_id="c", run="r", source="hook", phase="end", at=1.0, actions=answer.actions
        )
        assert decode(encode(part)) == part
        assert answer.actions or answer.findings or answer.status != "ok"


@pytest.mark.parametrize("ids", [TokenIds([1, 2]), None])
def test_the_gateway_records_cached_tokens(ids):
    usage = EngineUsage(7, 3, PromptDetails(cached_tokens=2))
    answer = ChatAnswer(body=b"", prompt_token_ids=ids, actions=[build_action({}, TokenIds([3]), None, "stop", 0)])
    counted = _count_usage(msgspec.structs.replace(answer, usage=usage))

    assert counted.cached_tokens == 2
    assert _count_usage(msgspec.structs.replace(answer, usage=EngineUsage(7, 3))).cached_tokens is None
