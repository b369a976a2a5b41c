"""What clients of each dialect ask for reaches the engine in its words."""

import json

import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}


def read_sent(dialect, body):
    """The engine's body, without its messages where there is nothing special about them."""
    request = dialect.read(json.dumps(body).encode(), "r-0")
    return json.loads(request.for_engine("m", {}))


def responses(**fields):
    return read_sent(Responses(), {"input": "hi", **fields})


def messages(*message, **fields):
    return read_sent(Messages(), {"messages": list(message), "max_tokens": 9, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"max_output_tokens": 7, "temperature": 0.5, "top_p": 0.9},
            {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9},
        ),
        ({"stop": ["x"], "seed": 3, "top_k": 4}, {"stop": ["x"], "seed": 3, "top_k": 4}),
        ({"tools": [{"type": "function", **FUNCTION}]}, {"tools": [{"type": "function", "function": FUNCTION}]}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {}),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning_effort": "high"}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"store": False, "metadata": {"a": "b"}, "include": [], "truncation": "auto", "prompt_cache_key": "k"}, {}),
        ({"brand_new": [1]}, {}),
    ],
)
def test_responses(fields, expected):
    base = {"model": "m", "return_token_ids": True, "logprobs": True, "messages": [{"role": "user", "content": "hi"}]}
    assert responses(**fields) == base | expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop_sequences": ["x"], "temperature": 0.5, "top_k": 4}, {"stop": ["x"], "temperature": 0.5, "top_k": 4}),
        (
            {
                "tools": [
                    {"name": "f", "description": "d", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
                ]
            },
            {"tools": [{"type": "function", "function": FUNCTION}]},
        ),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            {"tool_choice": {"type": "tool", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}},
            {
                "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}},
                "reasoning_effort": "low",
            },
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 64}}, {"thinking_token_budget": 64}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {}}, {}),
        ({"brand_new": [1]}, {}),
    ],
)
def test_messages(fields, expected):
    hello = {"role": "user", "content": "hi"}
    base = {"model": "m", "return_token_ids": True, "logprobs": True, "max_tokens": 9, "messages": [hello]}
    assert messages(hello, **fields) == base | expected


def test_parts_of_messages():
    cached = {"cache_control": {"type": "ephemeral"}}
    message = messages(
        {"role": "user", "content": [{"type": "text", "text": "one", **cached}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I "},
                {"type": "text", "text": "look"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"x": "y"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "seen"}], **cached},
                {"type": "image", "source": {"type": "url", "url": "http://i"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
                {"type": "video_url", "video_url": {"url": "http://v"}},
            ],
        },
        system=[{"type": "text", "text": "be"}, {"type": "text", "text": "brief", **cached}],
    )["messages"]

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
    assert message == [
        {"role": "system", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "I look", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "http://i"}},
                {"type": "text", "text": "doc"},
                {"type": "video_url", "video_url": {"url": "http://v"}},
            ],
        },
    ]


def test_items_of_responses():
    reply = responses(
        instructions="be brief",
        input=[
            {"role": "developer", "content": "dev"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
            {"role": "assistant", "content": "done"},
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "http://i", "detail": "low"},
                    {"type": "input_file", "filename": "n", "file_data": "d"},
                ],
            },
        ],
    )["messages"]

    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in "ab"]
    assert reply == [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "dev"},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": "done"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "http://i", "detail": "low"}},
                {"type": "file", "file": {"filename": "n", "file_data": "d"}},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("dialect", "body", "message"),
    [
        (Responses, {"input": "x", "tools": [{"type": "web_search"}]}, "web_search"),
        (Responses, {"input": [{"type": "computer_call"}]}, "computer_call"),
        (Responses, {"input": "x", "background": True}, "background"),
        (Responses, {"input": "x", "conversation": "c"}, "conversation"),
        (Responses, {"input": 3}, r"\$.input"),
        (Responses, {"input": "x", "n": 2}, "n = 1"),
        (Messages, {"messages": [], "tools": [{"name": "bash", "type": "bash_20250124"}]}, "bash_20250124"),
        (Messages, {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "server_tool_use"),
        (Messages, {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        (Messages, {"max_tokens": 3}, "messages"),
        (Messages, {"messages": [], "n": 2}, "n = 1"),
    ],
)
def test_what_has_no_place_is_refused(dialect, body, message):
    with pytest.raises(BadInputError, match=message):
        dialect().read(json.dumps(body).encode(), "r-0")
