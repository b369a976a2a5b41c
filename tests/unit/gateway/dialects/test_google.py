"""Google's dialect: requests reach the engine, answers come back as they were sampled; the rest has a name."""

import base64
import json
import random

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.google import EVENT_STREAM, JSON_ARRAY, Google
from agent_layer.schema import as_json_objects

from .test_there_and_back import answers, canonical, find_answer, make_exchange, read_chunks

SCHEMA = {"type": "object", "properties": {"max_items": {"type": "string"}}}
CAPITAL = {"type": "OBJECT", "properties": {"max_items": {"type": "STRING"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
HELLO = {"role": "user", "parts": [{"text": "hi"}]}
PICTURE = bytes(range(256))
DUMMY = "skip_thought_signature_validator"


def read(stream_type=None, /, **body):
    return Google(model="m", stream_type=stream_type).read(json.dumps(body).encode(), "r-0")


def sent(stream_type=None, /, **body):
    """Return the engine's body."""
    return json.loads(read(stream_type, **body).for_engine("m", {}))


def say(*contents, **fields):
    """Return the messages of the engine's body."""
    return sent(contents=list(contents), **fields)["messages"]


@pytest.mark.parametrize(
    ("fields", "expected", "not_applied"),
    [
        (
            {"generationConfig": {"temperature": 0.5, "topP": 0.9, "topK": 40.0, "maxOutputTokens": 7, "seed": 3}},
            {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_tokens": 7, "seed": 3},
            [],
        ),
        (
            {"generationConfig": {"stopSequences": ["x"], "candidateCount": 1, "presencePenalty": 1, "logprobs": 2}},
            {"stop": ["x"], "n": 1, "presence_penalty": 1, "top_logprobs": 2},
            [],
        ),
        ({"generation_config": {"max_output_tokens": 7, "stop_sequences": []}}, {"max_tokens": 7}, []),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": CAPITAL}]}]},
            {"tools": [{"type": "function", "function": FUNCTION}]},
            [],
        ),
        (
            {"tools": [{"function_declarations": {"name": "f", "description": "d", "parameters_json_schema": SCHEMA}}]},
            {"tools": [{"type": "function", "function": FUNCTION}]},
            [],
        ),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "response": CAPITAL, "behavior": "BLOCKING"}]}]},
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            ["functionDeclarations.behavior", "functionDeclarations.response"],
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, {"tool_choice": "auto"}, []),
        ({"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, {"tool_choice": "none"}, []),
        ({"tool_config": {"function_calling_config": {"mode": "ANY"}}}, {"tool_choice": "required"}, []),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            [],
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {"x": 1}}},
            {"tool_choice": "auto"},
            ["toolConfig.mode.VALIDATED", "toolConfig.retrievalConfig"],
        ),
        (
            {"generationConfig": {"responseMimeType": "application/json", "responseSchema": CAPITAL}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}},
            [],
        ),
        (
            {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}},
            [],
        ),
        (
            {"generationConfig": {"responseMimeType": "application/json"}},
            {"response_format": {"type": "json_object"}},
            [],
        ),
        (
            {
                "generationConfig": {
                    "responseMimeType": "text/x.enum",
                    "responseSchema": {"type": "STRING", "enum": ["a", "b"]},
                }
            },
            {"structured_outputs": {"choice": ["a", "b"]}},
            [],
        ),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, {"reasoning_effort": "none"}, []),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": True}}}, {}, []),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 64}}}, {"thinking_token_budget": 64}, []),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}, {"reasoning_effort": "low"}, []),
        (
            {
                "generationConfig": {
                    "responseModalities": ["TEXT", "IMAGE"],
                    "speechConfig": {"languageCode": "de"},
                    "mediaResolution": "LOW",
                    "responseMimeType": "text/xml",
                }
            },
            {},
            [
                "generationConfig.mediaResolution",
                "generationConfig.responseMimeType",
                "generationConfig.responseModalities",
                "generationConfig.speechConfig",
            ],
        ),
        ({"generationConfig": {"responseModalities": ["TEXT"], "audioTimestamp": False}}, {}, []),
        ({"safetySettings": [{"category": "X", "threshold": "BLOCK_NONE"}], "labels": {"a": "b"}}, {}, []),
        ({"return_token_ids": True, "chat_template_kwargs": {"a": 1}}, {"chat_template_kwargs": {"a": 1}}, []),
        ({"cachedContent": ""}, {}, []),
        (
            {"tools": [{"googleSearch": {}, "functionDeclarations": [{"name": "f"}]}, {"code_execution": {}}]},
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            ["tools.codeExecution", "tools.googleSearch"],
        ),
        (
            {"tools": [{"urlContext": {}}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            {},
            ["tools.urlContext"],
        ),
    ],
)
def test_what_is_asked(fields, expected, not_applied):
    hello = {"role": "user", "content": "hi"}
    base = {"model": "m", "return_token_ids": True, "logprobs": True, "messages": [hello]}

    assert sent(contents=[HELLO], **fields) == base | expected
    assert sorted(read(contents=[HELLO], **fields).not_applied) == not_applied


def test_unknown_members_are_named():
    assert "sorcery" in read(contents=[HELLO], sorcery=1).not_applied


@pytest.mark.parametrize("form", [EVENT_STREAM, JSON_ARRAY])
def test_the_address_asks_for_a_stream_and_names_the_model(form):
    request = read(form, contents=[HELLO], stream=False, model="another")

    assert (request.is_streamed, request.stream_type, request.model) == (True, form, "m")
    assert not read(contents=[HELLO], stream=True).is_streamed


def test_parts_of_contents():
    data = base64.urlsafe_b64encode(PICTURE).decode()
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    found = say(
        {"parts": {"text": "one"}},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "I "}]},
        {"role": "model", "parts": [{"text": "look"}, {"functionCall": {"name": "f", "args": {"x_y": "\u00e4"}}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "seen"}}},
                {"inlineData": {"mimeType": "image/png", "data": data}},
                {"inline_data": {"mime_type": "text/plain", "data": base64.b64encode(b"doc").decode()}},
                {"fileData": {"mimeType": "video/mp4", "fileUri": "http://v"}},
                {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}},
            ],
        },
        system_instruction={"parts": [{"text": "be"}, {"text": "brief"}]},
    )

    call = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x_y": "\u00e4"}'}}
    assert found == [
        {"role": "system", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "I look", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "seen"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "doc"},
                {"type": "video_url", "video_url": {"url": "http://v"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,cGRm"}},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": "seen"}, "seen"),
        ({"output": {"a": 1}}, '{"a": 1}'),
        ({"error": "no"}, '{"error": "no"}'),
        ({"result": 5}, '{"result": 5}'),
        ({"output": "a", "error": "b"}, '{"output": "a", "error": "b"}'),
        ({}, "{}"),
    ],
)
def test_results_are_what_the_tool_returned(response, text):
    (message,) = say({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": response}}]})

    assert message == {"role": "tool", "tool_call_id": "f", "content": text}


def test_schemas_of_openapi_become_json_schema():
    schema = {
        "type": "OBJECT",
        "nullable": True,
        "propertyOrdering": ["type"],
        "properties": {
            "type": {"type": "ARRAY", "minItems": "2", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]}},
            "min_items": {"type": "STRING", "format": "enum", "enum": ["A_B"], "nullable": True, "example": "A_B"},
        },
        "required": ["min_items"],
    }
    (tool,) = sent(contents=[], tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])["tools"]

    assert tool["function"]["parameters"] == {
        "type": ["object", "null"],
        "properties": {
            "type": {"type": "array", "minItems": 2, "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            "min_items": {
                "type": ["string", "null"],
                "format": "enum",
                "enum": ["A_B", None],
                "examples": ["A_B"],
            },
        },
        "required": ["min_items"],
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"contents": [], "cachedContent": "c"}, "cachedContent"),
        ({"contents": [], "continuationToken": "c"}, "continuationToken"),
        ({"contents": [{"role": "model", "parts": [{"executableCode": {}}]}]}, "executableCode"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://a"}}]}]}, "fileData"),
        ({"contents": [{"parts": [{"functionResponse": {}}]}]}, "name"),
        ({"contents": 3}, "contents"),
        ({"contents": [{"parts": 3}]}, "contents.parts"),
        ({"contents": [], "generationConfig": {"candidateCount": 2}}, "n = 1"),
        ({}, "contents"),
    ],
)
def test_what_has_no_place_is_refused(body, message):
    with pytest.raises(BadInputError, match=message):
        read(**body)


@pytest.mark.parametrize(
    ("contents", "is_prefilled"),
    [
        ([HELLO, {"role": "model", "parts": [{"text": "The "}]}], True),
        ([HELLO, {"role": "model", "parts": [{"text": "The "}]}, {"role": "model", "parts": [{"text": "end"}]}], True),
        ([HELLO, {"role": "model", "parts": [{"text": ""}]}], False),
        ([HELLO, {"role": "model", "parts": [{"text": "so", "thought": True}, {"text": "The "}]}], False),
        ([HELLO, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}], False),
        ([HELLO, {"role": "model", "parts": [{"text": "The end"}]}, HELLO], False),
        ([], False),
    ],
)
def test_a_last_text_of_the_model_is_the_beginning_of_its_answer(contents, is_prefilled):
    fields = sent(contents=contents)

    assert read(contents=contents).is_prefilled == is_prefilled
    assert (fields.get("continue_final_message"), fields.get("add_generation_prompt")) == (
        (True, False) if is_prefilled else (None, None)
    )


def test_counted_is_what_would_be_asked():
    whole = {"contents": [HELLO], "systemInstruction": {"parts": [{"text": "s"}]}}

    for body in (whole, {"generateContentRequest": {"model": "models/m", **whole}}):
        assert Google(model="m", is_counted=True).read(json.dumps(body).encode(), "r-0").roles == ["system", "user"]


def respelled(content, *, how):
    """Return a content as a client sends it back."""
    content = json.loads(json.dumps(content, sort_keys="sorted" in how))
    for part in content["parts"]:
        if "thoughtSignature" in part and "alphabet" in how:
            part["thoughtSignature"] = part["thoughtSignature"].replace("+", "-").replace("/", "_").rstrip("=")
        if "functionCall" in part and "anonymous" in how:
            part["functionCall"].pop("id")
        if "functionCall" in part and "renamed" in how:
            part["functionCall"]["id"] = f"f__{part['functionCall']['id']}"
        if "snake" in how and "functionCall" in part:
            part["function_call"] = part.pop("functionCall")
    return content


def make_results(content):
    """Return results of a content's calls; they name them as the client does."""
    calls = [part.get("functionCall") or part.get("function_call") for part in content["parts"]]
    return [
        {"functionResponse": {**{name: one[name] for name in ("id", "name") if name in one}, "response": {}}}
        for one in calls
        if one
    ]


HABITS = st.sets(st.sampled_from(["sorted", "alphabet", "anonymous", "snake"])) | st.just({"renamed"})


@given(answers(), answers("d"), HABITS, st.booleans(), st.booleans())
def test_what_comes_back_is_what_was_said(first, second, how, shows_thoughts, is_streamed):
    dialect = Google(model="m", stream_type=EVENT_STREAM if is_streamed else None)
    config = {"generationConfig": {"thinkingConfig": {"includeThoughts": shows_thoughts}}}
    contents = [HELLO]
    for message in (first, second):
        exchange = make_exchange(dialect, {"contents": contents, **config})
        if is_streamed:
            pieces = read_events(run_stream(dialect, exchange, message, 3)[0])
            kept = [piece["candidates"][0]["content"] for piece in pieces]
        else:
            kept = [json.loads(dialect.write(find_answer(message), exchange))["candidates"][0]["content"]]
        kept = [respelled(one, how=how) for one in kept]
        results = [result for one in kept for result in make_results(one)]
        contents += [*kept, {"role": "user", "parts": [*results, {"text": "go on"}]}]

    heard = say(*contents)
    assert [one for one in heard if one["role"] == "assistant"] == [canonical(first), canonical(second)]
    called = [call["id"] for message in heard for call in as_json_objects(message.get("tool_calls"))]
    assert [one["tool_call_id"] for one in heard if one["role"] == "tool"] == called


def test_thoughts_are_shown_to_those_who_ask():
    message = {"role": "assistant", "content": "x", "reasoning": "hm"}
    shown = {}
    for wants in (False, True):
        exchange = make_exchange(
            Google(model="m"),
            {"contents": [HELLO], "generation_config": {"thinking_config": {"include_thoughts": wants}}},
        )
        content = json.loads(Google(model="m").write(find_answer(message), exchange))["candidates"][0]["content"]
        shown[wants] = [part["text"] for part in content["parts"]]

    assert shown == {False: ["x"], True: ["hm", "x"]}


def test_a_call_that_the_client_changed_is_what_it_sent():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    exchange = make_exchange(Google(model="m"), {"contents": [HELLO]})
    answer = find_answer({"role": "assistant", "content": None, "tool_calls": [call]})
    (part,) = json.loads(Google(model="m").write(answer, exchange))["candidates"][0]["content"]["parts"]

    for args, text in (({"a": 1.0}, '{"a":1}'), ({"a": 2}, '{"a": 2}')):
        part["functionCall"]["args"] = args
        (message,) = say({"role": "model", "parts": [part]})
        assert message["tool_calls"][0]["function"]["arguments"] == text


@pytest.mark.parametrize(
    ("signature", "not_applied"),
    [
        ("Q2xhdWRl", ["contents.parts.thoughtSignature"]),
        ("no base64 \u00e4", ["contents.parts.thoughtSignature"]),
        (DUMMY, []),
        (base64.urlsafe_b64encode(DUMMY.encode()).decode(), []),
        ("", []),
    ],
)
def test_signatures_of_others_are_named(signature, not_applied):
    part = {"functionCall": {"name": "f"}, "thoughtSignature": signature}
    request = read(contents=[HELLO, {"role": "model", "parts": [part]}])

    assert request.not_applied == not_applied
    assert request.message(1)["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


@given(st.randoms(use_true_random=False))
def test_results_without_ids_go_to_their_calls_by_name_and_order(chance: random.Random):
    names = [chance.choice("fgh") for _ in range(chance.randint(1, 6))]
    calls = [{"functionCall": {"name": name, "args": {"at": at}}} for at, name in enumerate(names)]
    order = sorted(range(len(names)), key=lambda at: (names[at], at))  # by name, and of one name in order
    results = [{"functionResponse": {"name": names[at], "response": {"output": str(at)}}} for at in order]

    _, answer, *results = say(HELLO, {"role": "model", "parts": calls}, {"role": "user", "parts": results})

    numbers = {call["id"]: json.loads(call["function"]["arguments"])["at"] for call in answer["tool_calls"]}
    assert len(numbers) == len(names)
    assert {numbers[one["tool_call_id"]]: int(one["content"]) for one in results} == {at: at for at in order}


def run_stream(dialect, exchange, message, size, finish="stop"):
    """Send a message as a stream, cut anywhere; return what the client reads, and the stream."""
    events = [{"choices": [], "prompt_token_ids": [1, 2]}]
    events += [{"choices": [{"index": 0, "delta": delta}]} for delta in read_chunks(message, size)]
    events.append({"choices": [{"index": 0, "delta": {}, "token_ids": [3], "finish_reason": finish}]})
    sent = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    stream = dialect.stream(exchange)
    return b"".join(stream.feed(sent[start : start + 7 * size]) for start in range(0, len(sent), 7 * size)), stream


def read_events(seen):
    return [json.loads(line[6:]) for line in seen.split(b"\r\n\r\n")[:-1]]


@given(answers(), st.integers(1, 5), st.booleans())
def test_a_stream_is_the_whole_answer_in_either_form(message, size, shows_thoughts):
    config = {"thinkingConfig": {"includeThoughts": shows_thoughts}}
    read_form = {EVENT_STREAM: read_events, JSON_ARRAY: json.loads}
    for form, read_all in read_form.items():
        dialect = Google(model="m", stream_type=form)
        exchange = make_exchange(dialect, {"contents": [HELLO], "generationConfig": config})

        seen, stream = run_stream(dialect, exchange, message, size)

        pieces, whole = read_all(seen), json.loads(dialect.write(find_answer(message), exchange))
        assert all(piece["candidates"][0]["content"]["parts"] for piece in pieces)  # else clients keep no turn
        assert merged(pieces) == merged([whole])
        assert [piece["candidates"][0].get("finishReason") for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1]["candidates"][0]["finishReason"] == "STOP"
        assert pieces[-1]["usageMetadata"] == whole["usageMetadata"]
        assert canonical(stream.answer(0).actions[0].message) == canonical(message)


def merged(pieces):
    """Return the parts of all pieces, texts joined, without empty ones."""
    parts = []
    for piece in pieces:
        for part in piece["candidates"][0]["content"]["parts"]:
            is_same = (
                parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought")
            )
            if is_same and "thoughtSignature" not in part:
                parts[-1]["text"] += part["text"]
            else:
                parts.append(dict(part))
    return [part for part in parts if part != {"text": ""}]


def test_a_stream_that_fails_ends_with_googles_error():
    for form in (EVENT_STREAM, JSON_ARRAY):
        dialect = Google(model="m", stream_type=form)
        stream = dialect.stream(make_exchange(dialect, {"contents": [HELLO]}))

        seen = stream.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n') + stream.fail("gone")
        seen += stream.fail("again") if form == JSON_ARRAY else b""

        last = (json.loads(seen) if form == JSON_ARRAY else read_events(seen))[-1]["error"]
        assert (last["status"], last["message"], last["code"]) == ("UNAVAILABLE", "gone", 502)
