"""The OpenAI responses dialect, read into the form of chat completions. Pure functions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from agent_layer.schema import Action, JsonObject, Usage
from tracer.core import CallAnswer, CallRequest
from tracer.integrations.client import (
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
)

_NOT_SAMPLING = frozenset({"input", "instructions", "tools", "model", "stream", "stream_options"})
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXTS = frozenset({"input_text", "output_text", "text"})
_DELTAS = {
    "response.output_text.delta": "message",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
"""Events that carry a piece of text, and the type of its item."""


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Fault(msgspec.Struct):
    message: str | None = None


class _Body(msgspec.Struct):
    output: list[JsonObject] = []
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    error: _Fault | None = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct):
    """One event of a stream: the fields that are recorded."""

    type: str = ""
    response: _Body | None = None
    item: JsonObject | None = None
    delta: object = None


def _read_request(body: Mapping[str, object]) -> CallRequest:
    input_items, model = body.get("input"), body.get("model")
    spoken = (
        [{"role": "user", "content": input_items}]
        if isinstance(input_items, str)
        else _chat_messages(json_objects(input_items))
    )
    if instructions := body.get("instructions"):
        spoken = [{"role": "system", "content": instructions}, *spoken]
    return CallRequest(
        messages=list[object](spoken),
        tools=[_tool(tool) for tool in json_objects(body.get("tools"))] or None,
        sampling=sampling_fields(body, _NOT_SAMPLING),
        model=model if isinstance(model, str) else None,
    )


def _read_answer(body: bytes) -> CallAnswer:
    return parse_answer(lambda: _answer(read_as(body, _Body)))


def _read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
    def join(events: list[_Event]) -> CallAnswer:
        bodies = [event.response for event in events if event.response]
        if is_whole and bodies:
            return _answer(bodies[-1])
        return _answer(_Body(output=_items_so_far(events), model=bodies[0].model if bodies else None))

    return parse_stream(chunks, _Event, join, is_whole=is_whole)


def _items_so_far(events: list[_Event]) -> list[JsonObject]:
    """Return the items that are complete, and the text of the one that is not."""
    items, texts = list[JsonObject](), defaultdict[str, str](str)
    for event in events:
        if (kind := _DELTAS.get(event.type)) is not None:
            texts[kind] += str(event.delta)
        elif event.type == "response.output_item.done" and event.item:
            items.append(event.item)
            texts.clear()
    return [*items, *({"type": kind, "content": text} for kind, text in texts.items())]


def _answer(body: _Body) -> CallAnswer:
    if body.error is not None or body.status == "failed":
        return CallAnswer(status="error", error=(body.error and body.error.message) or "failed", model=body.model)
    (action,) = _join_items(body.output, _finish_reason(body)) or [Action()]
    usage = body.usage and Usage(prompt_tokens=body.usage.input_tokens, response_tokens=body.usage.output_tokens)
    return CallAnswer(actions=[action], model=body.model, usage=usage)


def _finish_reason(body: _Body) -> str | None:
    if body.incomplete_details and (reason := body.incomplete_details.reason):
        return "length" if reason == "max_output_tokens" else reason
    if any(item.get("type") == "function_call" for item in body.output):
        return "tool_calls"
    return "stop" if body.status == "completed" else None


def _join_items(items: list[JsonObject], finish_reason: str | None) -> list[Action]:
    """Return consecutive items of the model as one message; [] without items."""
    if not items:
        return []
    text = "".join(_text(item.get("content")) for item in items if item.get("type", "message") == "message")
    calls = [_call(item) for item in items if item.get("type") == "function_call"]
    thoughts = [_text(item.get("content")) or _text(item.get("summary")) for item in items if _is_reasoning(item)]
    return [assistant_action(text, "\n".join(filter(None, thoughts)), calls, finish_reason)]


def _is_reasoning(item: JsonObject) -> bool:
    return item.get("type") == "reasoning"


def _chat_messages(items: list[JsonObject]) -> list[JsonObject]:
    """Return the items of a request as messages; consecutive items of the model become one."""
    messages, chat_items = list[JsonObject](), list[JsonObject]()
    for item in items:
        if item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant":
            chat_items.append(item)
        else:
            messages += [*_chat_message(chat_items), _message(item)]
            chat_items = []
    return messages + _chat_message(chat_items)


def _chat_message(chat_items: list[JsonObject]) -> list[JsonObject]:
    return [action.message for action in _join_items(chat_items, None) if action.message]


def _message(item: JsonObject) -> JsonObject:
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": join_text(item.get("output"), _TEXTS)}
    if "role" in item:
        return {"role": item["role"], "content": join_text(item.get("content"), _TEXTS)}
    return item


def _text(content: object) -> str:
    return (
        content
        if isinstance(content, str)
        else "".join(str(part.get("text") or part.get("refusal") or "") for part in json_objects(content))
    )


def _call(item: JsonObject) -> JsonObject:
    return tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))


def _tool(tool: JsonObject) -> JsonObject:
    if tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _is_last(event: str) -> bool:
    return event_type(event) in _LAST


RESPONSES = Dialect(_read_request, _read_answer, _read_stream, _is_last)
