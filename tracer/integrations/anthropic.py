"""Tracing of the anthropic client: messages, beta ones included. Importing this module installs it.

Requests and answers are recorded in the form of chat completions.
"""

import json
from collections.abc import Iterable, Mapping

import msgspec
from anthropic import Anthropic, AsyncAnthropic

from agent_layer.schema import JsonObject, Usage
from tracer.core import CallAnswer, CallRequest
from tracer.integrations.client import (
    Api,
    Dialect,
    assistant_action,
    event_type,
    join_text,
    json_objects,
    parse_answer,
    parse_stream,
    read_as,
    sampling_fields,
    tool_call,
    trace_client,
)

_NOT_SAMPLING = frozenset({"messages", "system", "tools", "model", "stream"})
_TEXTS = frozenset({"text"})
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Body(msgspec.Struct):
    content: list[JsonObject] = []
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """One event of a stream: the fields that are recorded."""

    type: str = ""
    message: _Body | None = None
    index: int = 0
    content_block: JsonObject | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


def _read_request(request: Mapping[str, object]) -> CallRequest:
    # the client marks fields that the caller did not set with types of its own
    body = {name: value for name, value in request.items() if type(value).__name__ not in ("Omit", "NotGiven")}
    system, model = body.get("system"), body.get("model")
    messages: list[JsonObject] = [{"role": "system", "content": join_text(system, _TEXTS)}] if system else []
    for message in json_objects(body.get("messages")):
        messages += _chat_messages(message)
    return CallRequest(
        messages=list[object](messages),
        tools=[_tool(tool) for tool in json_objects(body.get("tools"))] or None,
        sampling=sampling_fields(body, _NOT_SAMPLING),
        model=model if isinstance(model, str) else None,
    )


def _read_answer(body: bytes) -> CallAnswer:
    return parse_answer(lambda: _answer(read_as(body, _Body)))


def _read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
    return parse_stream(chunks, _Event, lambda events: _answer(_gather(events)), is_whole=is_whole)


def _gather(events: list[_Event]) -> _Body:
    """Assemble the message from its events."""
    began = next((event.message for event in events if event.message), _Body())
    blocks: dict[int, JsonObject] = {event.index: event.content_block for event in events if event.content_block}
    deltas = [(event.index, event.delta) for event in events if event.delta and event.type == "content_block_delta"]
    for index, block in blocks.items():
        mine = [delta for at, delta in deltas if at == index]
        blocks[index] = block | {
            "text": str(block.get("text") or "") + "".join(delta.text for delta in mine),
            "thinking": str(block.get("thinking") or "") + "".join(delta.thinking for delta in mine),
            "json": "".join(delta.partial_json for delta in mine),
        }
    ended = [event for event in events if event.type == "message_delta"]
    usages = [event.usage for event in ended if event.usage]
    return _Body(
        content=[blocks[index] for index in sorted(blocks)],
        model=began.model,
        stop_reason=next((event.delta.stop_reason for event in reversed(ended) if event.delta), None),
        usage=_Usage(
            input_tokens=began.usage and began.usage.input_tokens,
            output_tokens=usages[-1].output_tokens if usages else None,
        ),
    )


def _answer(body: _Body) -> CallAnswer:
    reason = body.stop_reason and _REASONS.get(body.stop_reason, body.stop_reason)
    usage = body.usage and Usage(prompt_tokens=body.usage.input_tokens, response_tokens=body.usage.output_tokens)
    return CallAnswer(actions=[assistant_action(*_parse_output(body.content), reason)], model=body.model, usage=usage)


def _parse_output(blocks: list[JsonObject]) -> tuple[str, str, list[JsonObject]]:
    """Return (text, reasoning, tool calls)."""
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    return text, "\n".join(thoughts), [tool_call(use.get("id"), use.get("name"), _arguments(use)) for use in uses]


def _arguments(use: JsonObject) -> str:
    """Return the arguments as JSON text; a stream sends them in pieces of text."""
    value = use.get("json")
    return value if isinstance(value, str) and value else json.dumps(use.get("input") or {}, ensure_ascii=False)


def _chat_messages(message: JsonObject) -> list[JsonObject]:
    """Return one message as chat messages; each tool result becomes a message of its own."""
    blocks = json_objects(message.get("content"))
    if not blocks:
        return [message]
    if message.get("role") == "assistant":
        spoken = assistant_action(*_parse_output(blocks), None).message
        return [spoken] if spoken else []
    results = [block for block in blocks if block.get("type") == "tool_result"]
    answer_blocks = [
        {"role": "tool", "tool_call_id": one.get("tool_use_id"), "content": join_text(one.get("content"), _TEXTS)}
        for one in results
    ]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    return [*answer_blocks, *([{"role": "user", "content": join_text(others, _TEXTS)}] if others else [])]


def _tool(tool: JsonObject) -> JsonObject:
    if "input_schema" not in tool:
        return tool
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["input_schema"]}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _is_last(event: str) -> bool:
    return event_type(event) == "message_stop"


ANTHROPIC_MESSAGES = Dialect(_read_request, _read_answer, _read_stream, _is_last)


__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"X-Api-Key": key, "Authorization": f"Bearer {key}"}


trace_client(Api(Anthropic, AsyncAnthropic, {"/v1/messages": ANTHROPIC_MESSAGES}, root="..", key_headers=_key_headers))
