"""Tracing of the openai client: chat completions and responses. Importing this module installs it."""

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec
from openai import AsyncOpenAI, OpenAI

from agent_layer.schema import Action, JsonObject, Usage
from tracer.core import CallAnswer, CallRequest
from tracer.integrations.client import Api, Dialect, parse_answer, sampling_fields, trace_client
from tracer.integrations.openai_responses import RESPONSES

_NOT_SAMPLING = frozenset({"messages", "tools", "model", "stream", "stream_options"})
_DONE = "[DONE]"
_REPLACED = frozenset({"role", "id", "type", "name"})
"""Fields of a delta that are sent whole; other texts are sent in pieces."""


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    message: JsonObject | None = None
    delta: JsonObject | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    """An answer, or one chunk of it."""

    choices: list[_Choice] = []
    model: str | None = None
    usage: _Usage | None = None


def _read_request(body: Mapping[str, object]) -> CallRequest:
    """Read a request."""
    messages, model = body.get("messages"), body.get("model")
    return CallRequest(
        messages=cast("list[object]", messages) if isinstance(messages, list) else None,
        tools=body.get("tools"),
        sampling=sampling_fields(body, _NOT_SAMPLING),
        model=model if isinstance(model, str) else None,
    )


def _read_answer(body: bytes) -> CallAnswer:
    """Read an answer that was not streamed."""

    def read() -> CallAnswer:
        answer = msgspec.json.decode(body, type=_Body)
        choices = sorted(answer.choices, key=lambda choice: choice.index)
        return _answer([answer], {choice.index: choice.message or {} for choice in choices})

    return parse_answer(read)


def _read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
    """Assemble an answer from its chunks.

    Args:
        chunks: JSON text of each; ``[DONE]`` may be among them.
        is_whole: False when the caller did not read the stream to its end: the answer counts as aborted.
    """
    return parse_answer(
        lambda: _joined([msgspec.json.decode(chunk, type=_Body) for chunk in chunks if not _is_last(chunk)]),
        is_whole=is_whole,
    )


def _joined(bodies: list[_Body]) -> CallAnswer:
    messages: dict[int, JsonObject] = {}
    for body in bodies:
        for choice in body.choices:
            messages[choice.index] = _add_delta(messages.get(choice.index, {}), choice.delta or {})
    return _answer(bodies, {index: _without_indices(message) for index, message in sorted(messages.items())})


def _answer(bodies: list[_Body], messages: dict[int, JsonObject]) -> CallAnswer:
    reasons = {choice.index: choice.finish_reason for body in bodies for choice in body.choices if choice.finish_reason}
    usage = next((body.usage for body in reversed(bodies) if body.usage), None)
    return CallAnswer(
        actions=[Action(message=message, finish_reason=reasons.get(index)) for index, message in messages.items()],
        model=next((body.model for body in bodies if body.model), None),
        usage=usage and Usage(prompt_tokens=usage.prompt_tokens, response_tokens=usage.completion_tokens),
    )


def _add_delta(message: JsonObject, delta: Mapping[str, object]) -> JsonObject:
    """Return the message with the delta's pieces added; lists are merged by their items' ``index``."""
    added = dict(message)
    for name, piece in delta.items():
        before = added.get(name)
        if piece is None:
            added.setdefault(name, None)
        elif isinstance(piece, str) and isinstance(before, str) and name not in _REPLACED:
            added[name] = before + piece
        elif isinstance(piece, list):
            added[name] = _add_items(cast("list[JsonObject]", before or []), cast("list[JsonObject]", piece))
        elif isinstance(piece, dict) and isinstance(before, dict):
            added[name] = _add_delta(cast("JsonObject", before), cast("JsonObject", piece))
        else:
            added[name] = piece
    return added


def _add_items(before: list[JsonObject], pieces: list[JsonObject]) -> list[JsonObject]:
    items = list(before)
    for piece in pieces:
        index = piece.get("index")
        place = next((at for at, item in enumerate(items) if index is not None and item.get("index") == index), None)
        if place is None:
            items.append(piece)
        else:
            items[place] = _add_delta(items[place], piece)
    return items


def _without_indices(message: JsonObject) -> JsonObject:
    """Return the message in the form of an answer that was not streamed: tool calls without ``index``."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    whole = [
        {name: value for name, value in call.items() if name != "index"} for call in cast("list[JsonObject]", calls)
    ]
    return {**message, "tool_calls": whole}


def _is_last(event: str) -> bool:
    return event.startswith(_DONE)


CHAT = Dialect(_read_request, _read_answer, _read_stream, _is_last)


__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


trace_client(
    OpenAI, AsyncOpenAI, Api({"/chat/completions": CHAT, "/responses": RESPONSES}, root="", key_headers=_key_headers)
)
