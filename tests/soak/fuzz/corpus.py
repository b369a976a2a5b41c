"""Valid inputs, from which mutations start: each has many of the forms that clients send."""

import base64
import json

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_FUNCTION = {
    "name": "add",
    "description": "d",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
_IMAGE = "data:image/png;base64,iVBORw0KGgo="
_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

CHATS = [
    {"model": "m", "messages": [{"role": "user", "content": "hello"}]},
    {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": _IMAGE}}],
            },
            {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
    },
    {
        "model": "m",
        "messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y", "name": "me"}],
        "n": 2,
        "max_completion_tokens": 20,
        "temperature": 0.7,
        "top_p": 0.9,
        "stop": ["x", "y"],
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "metadata": {"a": "b"},
        "logit_bias": {"5": 1},
        "user": "u",
    },
]
MESSAGES = [
    {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]},
    {
        "model": "m",
        "max_tokens": 20,
        "stream": True,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "thread": {"type": "create"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "2"}]}],
            },
        ],
        "tools": [{"name": "add", "description": "d", "input_schema": _FUNCTION["parameters"]}],
        "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["x"],
        "temperature": 0.5,
        "top_k": 3,
        "metadata": {"user_id": "u"},
    },
]
RESPONSES = [
    {"model": "m", "input": "hello", "instructions": "be brief"},
    {
        "model": "m",
        "stream": True,
        "store": True,
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": _IMAGE}],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1"},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        "tools": [{"type": "function", **_FUNCTION, "strict": True}],
        "tool_choice": {"type": "function", "name": "add"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 20,
        "temperature": 0.5,
        "truncation": "auto",
        "include": ["reasoning.encrypted_content"],
        "previous_response_id": "resp_0",
        "metadata": {"a": "b"},
    },
]
CONTENTS = [
    {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    {
        "contents": [
            {"role": "user", "parts": [{"text": "add"}, {"inlineData": {"mimeType": "image/png", "data": "iVBOR"}}]},
            {
                "role": "model",
                "parts": [{"text": "hm", "thought": True}, {"functionCall": {"name": "f", "args": {"a": 1}}}],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "2"}}}]},
        ],
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {}}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {
            "temperature": 0.5,
            "topK": 4,
            "maxOutputTokens": 9,
            "responseMimeType": "application/json",
            "responseSchema": {"type": "STRING", "nullable": True},
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 5},
        },
    },
]
DIALECTS = {
    "chat/completions": CHATS,
    "messages": MESSAGES,
    "messages/count_tokens": MESSAGES,
    "responses": RESPONSES,
    "models/m:generateContent": CONTENTS,
    "models/m:streamGenerateContent?alt=sse": CONTENTS,
}


def _pairs(attributes: dict[str, object]) -> list[dict[str, object]]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}
    return [
        {"key": name, "value": {"arrayValue": {"values": [{"stringValue": str(one)} for one in value]}}}
        if isinstance(value, list)
        else {"key": name, "value": {kinds[type(value)]: value}}
        for name, value in attributes.items()
    ]


def _span(number: int, parent: int | None, **attributes: object) -> dict[str, object]:
    own = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": f"{number:016x}", "name": f"span {number}"}
    times = {"startTimeUnixNano": f"{number}0000000000", "endTimeUnixNano": f"{number}1000000000"}
    inside = {} if parent is None else {"parentSpanId": f"{parent:016x}"}
    return {**own, **times, **inside, "kind": 3, "status": {"code": 1}, "attributes": _pairs(attributes)}


_SPOKEN = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}])
_ANSWERED = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}])
_SPANS = [
    _span(
        1, None, **{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a", "gen_ai.conversation.id": "x"}
    ),
    _span(
        2,
        1,
        **{
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.stop_sequences": ["a", "b"],
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.input.messages": _SPOKEN,
            "gen_ai.output.messages": _ANSWERED,
            "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "add"}]),
        },
    ),
    _span(
        3, 1, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "gen_ai.tool.call.arguments": "{}"}
    ),
    _span(
        4,
        1,
        **{
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.invocation_parameters": '{"temperature": 1}',
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "hello",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "add",
            "llm.token_count.prompt": 5,
        },
    ),
    _span(
        5,
        1,
        **{
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "add",
            "traceloop.entity.input": "{}",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "hello",
            "llm.request.type": "chat",
        },
    ),
]
TRACES = [
    {
        "resourceSpans": [
            {
                "resource": {"attributes": _pairs({"service.name": "s", "agent_layer.run": "r"})},
                "scopeSpans": [{"scope": {"name": "n", "version": "1"}, "spans": [one]}],
            }
        ]
    }
    for one in _SPANS
] + [{"resourceSpans": [{"scopeSpans": [{"spans": _SPANS}]}]}]


def as_protobuf(trace: dict[str, object]) -> bytes:
    """Return a trace as an exporter sends it in protobuf; ids are hexadecimal in JSON, and bytes there."""

    def encoded(value: object) -> object:
        if isinstance(value, list):
            return [encoded(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {name: _base64(one) if name in _IDS else encoded(one) for name, one in value.items()}

    return ParseDict(encoded(trace), ExportTraceServiceRequest()).SerializeToString()


_IDS = ("traceId", "spanId", "parentSpanId")


def _base64(text: object) -> str:
    return base64.b64encode(bytes.fromhex(str(text))).decode()


TASKS = [
    {"input": "6 times 7"},
    {
        "id": "t",
        "task_type": "math",
        "input": {"q": [1, {"a": None}]},
        "grading": 2,
        "env": "e",
        "agent": "a:b",
        "scorer": "m:f",
        "rewards": {"x": {"weight": 0.5, "required": False}},
        "group_size": 3,
        "launch": 4,
        "partial": "refill",
        "sampling": {"temperature": 1, "stop": ["x"]},
        "limits": {"turns": 4, "wall_seconds": 5.5, "tokens": 10, "idle_seconds": 3, "sandbox_seconds": 900},
        "priority": 2,
        "needs": ["gpu"],
        "from_policy": 3,
        "expected_seconds": 2.5,
        "seed": 7,
        "labels": {"k": "v"},
        "calls_optional": True,
    },
]
