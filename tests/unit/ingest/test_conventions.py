"""Meaning of spans under each convention; test_instrumentations has the spans of real instrumentations."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.ingest.conventions.recognition import interpret_span
from agent_layer.ingest.spans import AgentRun, ModelCall, ReceivedEvent, ReceivedSpan, ToolCall
from agent_layer.schema.messages import to_chat_messages, to_part_message


def span(*events, **attributes):
    fields = {key.replace("__", "."): value for key, value in attributes.items()}
    place = {"trace_id": "a" * 32, "span_id": "b" * 16, "name": "span", "began_at": 1.0, "ended_at": 2.0}
    return ReceivedSpan(**place, attributes=fields, events=list(events))


texts = st.text(max_size=5)
calls = st.builds(
    lambda name, value: {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(value)}},
    texts,
    st.dictionaries(texts, st.integers(0, 9) | texts, max_size=2),
)
messages = st.one_of(
    st.builds(lambda role, text: {"role": role, "content": text or None}, st.sampled_from(["system", "user"]), texts),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "c1", "content": text}, texts),
    st.builds(
        lambda question: {"role": "assistant", "content": None, "tool_calls": question}, st.lists(calls, min_size=1)
    ),
    st.just({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}),
    st.just({"role": "assistant", "content": "so", "reasoning_content": "because"}),
)


@given(messages)
def test_a_chat_message_comes_back_from_its_parts(message):
    (found,) = to_chat_messages(to_part_message(message))

    for call in found.get("tool_calls", []):
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
    assert found == message


def test_earlier_openllmetry_numbers_its_prompts_and_completions():
    attributes = {
        "llm__request__type": "chat",
        "gen_ai__request__model": "m",
        "gen_ai__request__temperature": 0.5,
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": "what",
        "gen_ai__prompt__10__role": "tool",
        "gen_ai__prompt__10__content": "found",
        "gen_ai__prompt__10__tool_call_id": "c1",
        "gen_ai__prompt__2__role": "assistant",
        "gen_ai__prompt__2__tool_calls__0__id": "c1",
        "gen_ai__prompt__2__tool_calls__0__name": "look",
        "gen_ai__prompt__2__tool_calls__0__arguments": "{}",
        "gen_ai__completion__0__role": "assistant",
        "gen_ai__completion__0__content": "yes",
        "gen_ai__completion__0__finish_reason": "stop",
        "gen_ai__usage__prompt_tokens": 3,
        "gen_ai__usage__completion_tokens": 4,
        "llm__request__functions__0__name": "look",
        "llm__request__functions__0__parameters": '{"type": "object"}',
    }

    call = interpret_span(span(**attributes))

    assert isinstance(call, ModelCall)
    assert [message["role"] for message in call.messages] == ["user", "assistant", "tool"]
    assert call.messages[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert (call.actions[0].message, call.actions[0].finish_reason) == (
        {"role": "assistant", "content": "yes"},
        "stop",
    )
    assert (call.usage.prompt_tokens, call.usage.response_tokens, call.sampling) == (3, 4, {"temperature": 0.5})
    assert call.tools == [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


PARTS = [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (json.dumps(PARTS), PARTS),
        (
            json.dumps([{"type": "image", "source": {"type": "base64"}}]),
            [{"type": "image", "source": {"type": "base64"}}],
        ),
        ('[{"type": "square"}]', '[{"type": "square"}]'),
        ('[1, {"type": "text"}]', '[1, {"type": "text"}]'),
        ("[no json", "[no json"),
        ("[]", "[]"),
    ],
)
def test_parts_of_openllmetry_are_parts_and_other_text_stays_text(content, shown):
    attributes = {
        "llm__request__type": "chat",
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": content,
        "gen_ai__completion__0__content": content,
    }

    call = interpret_span(span(**attributes))

    assert (call.messages[0]["content"], call.actions[0].message["content"]) == (shown, shown)


def test_media_in_parts_of_genai_are_parts_of_a_chat_message():
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "eA=="}
    parts = [{"type": "text", "content": "what"}, blob, {"type": "uri", "modality": "audio", "uri": "https://a/b.wav"}]
    odd = {"type": "blob", "modality": "smell", "content": "eA=="}
    spoken = [{"role": "user", "parts": [*parts, odd]}]

    call = interpret_span(span(gen_ai__operation__name="chat", gen_ai__input__messages=json.dumps(spoken)))

    audio = {"type": "audio_url", "audio_url": {"url": "https://a/b.wav"}}
    assert call.messages == [{"role": "user", "content": [*PARTS, audio, odd]}]


def test_entities_of_openllmetry_are_tools_and_agents():
    tool = span(traceloop__span__kind="tool", traceloop__entity__name="look", traceloop__entity__output='{"a": 1}')

    assert interpret_span(tool) == ToolCall(name="look", output={"a": 1})
    assert interpret_span(span(traceloop__span__kind="agent", traceloop__entity__name="solver")) == AgentRun(
        name="solver"
    )
    assert interpret_span(span(traceloop__span__kind="workflow", traceloop__entity__name="all")) is None


def test_openinference_tells_of_tools_agents_and_images():
    attributes = {
        "openinference__span__kind": "LLM",
        "llm__input_messages__0__message__role": "user",
        "llm__input_messages__0__message__contents__0__message_content__type": "text",
        "llm__input_messages__0__message__contents__0__message_content__text": "what is this",
        "llm__input_messages__0__message__contents__1__message_content__type": "image",
        "llm__input_messages__0__message__contents__1__message_content__image__image__url": "data:,x",
    }

    assert interpret_span(span(openinference__span__kind="TOOL", tool__name="look", output__value="found")) == ToolCall(
        name="look", output="found"
    )
    assert interpret_span(span(openinference__span__kind="AGENT")) == AgentRun(name="span")
    assert interpret_span(span(openinference__span__kind="CHAIN")) is None
    assert interpret_span(span(**attributes)).messages == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this"},
                {"type": "image_url", "image_url": {"url": "data:,x"}},
            ],
        }
    ]


def test_contents_may_stand_in_an_event_and_be_structured():
    spoken = [{"role": "user", "parts": [{"type": "text", "content": "what"}]}]
    details = ReceivedEvent(
        name="gen_ai.client.inference.operation.details",
        attributes={
            "gen_ai.input.messages": spoken,
            "gen_ai.system_instructions": [{"type": "text", "content": "be brief"}],
        },
    )

    call = interpret_span(span(details, gen_ai__operation__name="chat"))

    assert call.messages == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what"}]
    assert call.actions is None


@pytest.mark.parametrize("value", ["no json", "{}", '[1, "a"]', "", 5])
def test_contents_of_another_shape_are_left_out(value):
    attributes = {
        "gen_ai__operation__name": "chat",
        "gen_ai__input__messages": value,
        "gen_ai__output__messages": value,
    }

    call = interpret_span(span(**attributes, gen_ai__tool__definitions=value))

    assert (call.messages, call.actions, call.tools) == (None, None, None)


NAMES = (
    "openinference.span.kind",
    "llm.input_messages.0.message",
    "llm.input_messages.0.message.tool_calls.0.tool_call.id",
    "llm.output_messages.x",
    "output.value",
    "llm.invocation_parameters",
    "gen_ai.operation.name",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.response.finish_reasons",
    "gen_ai.prompt.0",
    "gen_ai.completion.0.tool_calls.0",
    "llm.request.type",
    "traceloop.span.kind",
)
VALUES = ("LLM", "chat", "tool", "[]", '[{"parts": 1}]', '{"choices": [1]}', 1, 1.5, True, None, [1], ["a"], {"a": 1})


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)))
def test_no_span_is_too_odd_to_be_looked_at(attributes):
    place = {"trace_id": "a" * 32, "span_id": "b" * 16, "name": "span", "began_at": 1.0, "ended_at": 2.0}

    interpret_span(ReceivedSpan(**place, attributes=attributes))
