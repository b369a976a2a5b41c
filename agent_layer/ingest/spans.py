"""Received spans in every encoding, their meaning once the convention is known, and lines of message logs.

A line is either a conversation, as used for fine-tuning: ``{"messages": […], "tools"?, "reward"?, "task_id"?,
"task_type"?, "model"?, "id"?, "metadata"?, "created"?}``. Or it is a call with its answer:
``{"request": {"messages": […], …}, "response": {"choices": […], …}, "reward"?, …}``. Other fields of a line are kept
beside the outcome.
"""

import math
from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import (
    UNREADABLE,
    Action,
    JsonObject,
    Usage,
    as_json_object,
    as_json_objects,
    check_name,
    check_storable,
)

_MAX_INDEX_DIGITS = 9
"""Digits."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_LATEST = 32_503_680_000
"""The year 3000; larger values are milliseconds."""
_KNOWN = frozenset(
    {"messages", "tools", "functions", "reward", "task_id", "task_type", "model", "id", "metadata", "created"}
    | {"request", "response"}
)
_SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n", "tool_choice")


class ReceivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event inside a span."""

    name: str
    attributes: JsonObject


class ReceivedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Times are seconds since the epoch."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    name: str
    began_at: float
    ended_at: float
    parent_id: str | None = None
    """None: it is a root."""
    state: str | None = None
    attributes: JsonObject = {}
    resource: JsonObject = {}
    """Attributes of the sender, such as ``service.name``."""
    events: list[ReceivedEvent] = []
    is_error: bool = False
    error: str | None = None
    """Error message of the span's status."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call. None: not known, for instance because the sender does not capture contents."""

    messages: list[JsonObject] | None = None
    """Messages in chat request form."""
    tools: object = None
    sampling: JsonObject = {}
    model: str | None = None
    actions: list[Action] | None = None
    """[num_choices]."""
    usage: Usage | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    name: str
    arguments: object = None
    output: object = None
    call_id: str | None = None
    """Id of the tool call in the model's message."""


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """An agent run; calls below belong to it."""

    name: str


SpanMeaning: TypeAlias = ModelCall | ToolCall | AgentRun


def first_text(attributes: Mapping[str, object], *names: str) -> str | None:
    """Return the first of these attributes that is text."""
    return next((value for name in names if isinstance(value := attributes.get(name), str) and value), None)


def first_integer(attributes: Mapping[str, object], *names: str) -> int | None:
    """Return the first of these attributes that is a whole number."""
    return next((value for name in names if isinstance(value := attributes.get(name), int)), None)


def token_usage(
    attributes: Mapping[str, object], prompt_names: tuple[str, ...], answered: tuple[str, ...]
) -> Usage | None:
    """Return the token counts; None if neither attribute is present."""
    usage = Usage(
        prompt_tokens=first_integer(attributes, *prompt_names), response_tokens=first_integer(attributes, *answered)
    )
    return None if usage == Usage() else usage


def unflatten(attributes: Mapping[str, object], prefix: str) -> list[JsonObject]:
    """Collect values from numbered names such as ``prefix.0.message.role``.

    Returns: [num_items], in order of their numbers, objects within objects; lists are objects by number.
    """
    items: dict[int, JsonObject] = {}
    for name, value in attributes.items():
        number, dot, path = name.removeprefix(f"{prefix}.").partition(".")
        if name.startswith(f"{prefix}.") and dot and _is_index(number):
            _put(items.setdefault(int(number), {}), path.split("."), value)
    return [items[number] for number in sorted(items)]


def numbered_objects(numbered: object) -> list[JsonObject]:
    """Return the objects in an object whose names are numbers, in their order."""
    found = cast("JsonObject", numbered) if isinstance(numbered, dict) else {}
    items = [found[number] for number in sorted(filter(_is_index, found), key=int)]
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def _is_index(name: str) -> bool:
    return name.isdecimal() and len(name) <= _MAX_INDEX_DIGITS


def _put(target: JsonObject, path: list[str], value: object) -> None:  # kept: it ends early, in a loop of its caller
    for step in path[:-1]:
        below = target.setdefault(step, {})
        if not isinstance(below, dict):
            return
        target = cast("JsonObject", below)
    target[path[-1]] = value


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model."""

    num_before: int
    """Number of messages in its prompt."""
    choices: list[JsonObject]
    """[num_choices] messages of the assistant."""
    finish_reasons: list[str | None]
    """[num_choices]."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded line."""

    messages: list[JsonObject]
    turns: list[Turn]
    """At least one."""
    tools: object = None
    rewards: dict[str, float] = {}
    task_id: str | None = None
    task_type: str | None = None
    model: str | None = None
    at: float | None = None
    """Seconds since the epoch; None: not known."""
    sampling: JsonObject = {}
    usage: JsonObject = {}
    labels: dict[str, str] = {}
    rest: JsonObject = {}
    """Other fields of the line."""


def read_line(line: bytes, where: str) -> Conversation:
    """Read one line.

    Args:
        line: JSON.
        where: names it in errors.

    Raises: BadInputError: it has neither of the two forms.
    """
    try:
        decoded: object = msgspec.json.decode(line)
    except UNREADABLE as error:
        raise _line_error(where, "a JSON object", str(error)) from error
    fields = as_json_object(decoded)
    if not fields:
        raise _line_error(where, "a JSON object", type(decoded).__name__)
    check_storable(fields, where)
    request, response = as_json_object(fields.get("request")), as_json_object(fields.get("response"))
    record = {**request, "created": response.get("created"), **_without_null("model", response), **fields}
    messages = _read_messages(record.get("messages"), where)
    return Conversation(
        messages=messages,
        turns=[_read_response(response, messages, where)] if response else _read_turns(messages, where),
        tools=record.get("tools") or record.get("functions"),
        rewards=_read_rewards(fields.get("reward"), where),
        task_id=_read_name(fields, "task_id", where),
        task_type=_read_name(fields, "task_type", where),
        model=model if isinstance(model := record.get("model"), str) else None,
        at=_read_time(record.get("created"), where),
        sampling={name: request[name] for name in _SAMPLING if name in request},
        usage=as_json_object(response.get("usage")),
        labels=_read_labels(fields),
        rest={name: value for name, value in fields.items() if name not in _KNOWN},
    )


def _without_null(name: str, fields: JsonObject) -> JsonObject:
    return {name: fields[name]} if fields.get(name) is not None else {}


def _read_turns(messages: list[JsonObject], where: str) -> list[Turn]:
    turns = [
        Turn(num_before=at, choices=[message], finish_reasons=[None])
        for at, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    if not turns:
        raise _line_error(where, "at least one message of the assistant", "none")
    return turns


def _read_response(response: JsonObject, messages: list[JsonObject], where: str) -> Turn:
    choices = as_json_objects(response.get("choices"))
    answers = _read_messages([choice.get("message") for choice in choices], f"{where}: choices")
    reasons = [reason if isinstance(reason := choice.get("finish_reason"), str) else None for choice in choices]
    return Turn(num_before=len(messages), choices=answers, finish_reasons=reasons)


def _read_messages(value: object, where: str) -> list[JsonObject]:
    messages = as_json_objects(value)
    if not messages or len(messages) != len(cast("list[object]", value)):
        raise _line_error(where, "'messages', a list of objects", "others" if messages else type(value).__name__)
    for number, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            raise _line_error(where, f"a role ({', '.join(_ROLES)}) in message {number}", repr(message.get("role")))
        if not isinstance(message.get("content"), str | list | None):
            raise _line_error(where, f"text or parts as content of message {number}", repr(message.get("content")))
    return messages


def _read_time(created: object, where: str) -> float | None:
    if created is None:
        return None
    if isinstance(created, bool) or not isinstance(created, int | float) or not 0 <= created < _LATEST:
        raise _line_error(where, "'created', seconds since the epoch", repr(created))
    return float(created)


def _read_rewards(value: object, where: str) -> dict[str, float]:
    """A number, or numbers by name; null means not known."""
    named = cast("JsonObject", value) if isinstance(value, dict) else {"reward": value}
    rewards: dict[str, float] = {}
    for name, score in named.items():
        if score is None:
            continue
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise _line_error(where, "'reward', a number or numbers by name", repr(score))
        rewards[name] = float(score)
    return rewards


def _read_name(fields: JsonObject, field: str, where: str) -> str | None:
    value = fields.get(field)
    return None if value is None else check_name(str(value), f"{where}: {field}")


def _read_labels(fields: JsonObject) -> dict[str, str]:
    labels = {**as_json_object(fields.get("metadata")), **({"id": fields["id"]} if "id" in fields else {})}
    return {name: _label(value) for name, value in labels.items() if value is not None}


def _label(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _line_error(where: str, expected: str, found: str) -> BadInputError:
    return BadInputError(f"{where}: expected {expected}, found {found}; nothing was imported, correct the line")
