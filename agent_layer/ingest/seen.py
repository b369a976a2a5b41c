"""This file holds what a span turns out to tell of, once its convention is known; and how its values are read."""

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec

from agent_layer.schema.record import JsonObject
from agent_layer.schema.step import Action, Usage

__all__ = [
    "AgentRun",
    "ModelCall",
    "Seen",
    "ToolCall",
    "in_order",
    "json_of",
    "nested",
    "number_of",
    "text_of",
    "usage_of",
]


_LONGEST_INDEX = 9
"""Digits."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a model. None: the span does not say, for instance because contents are not captured."""

    messages: list[JsonObject] | None = None
    """As a chat request has them."""
    tools: object = None
    sampling: JsonObject = {}
    model: str | None = None
    actions: list[Action] | None = None
    """[num_choices]."""
    usage: Usage | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool at work."""

    name: str
    arguments: object = None
    output: object = None
    call_id: str | None = None
    """Of the tool call in the model's message."""


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """An agent at work: calls below are its own."""

    name: str


Seen: TypeAlias = ModelCall | ToolCall | AgentRun


def text_of(attributes: Mapping[str, object], *names: str) -> str | None:
    """Give the first of these attributes that is text."""
    return next((value for name in names if isinstance(value := attributes.get(name), str) and value), None)


def number_of(attributes: Mapping[str, object], *names: str) -> int | None:
    """Give the first of these attributes that is a whole number."""
    return next((value for name in names if isinstance(value := attributes.get(name), int)), None)


def usage_of(attributes: Mapping[str, object], asked: tuple[str, ...], answered: tuple[str, ...]) -> Usage | None:
    """Give the counts of tokens; None where neither is told."""
    usage = Usage(prompt_tokens=number_of(attributes, *asked), response_tokens=number_of(attributes, *answered))
    return None if usage == Usage() else usage


def json_of(value: object) -> object:
    """Read a value that may be JSON text; text that is none, or is nested beyond use, stays text."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError):
        return value


def nested(attributes: Mapping[str, object], prefix: str) -> list[JsonObject]:
    """Put together what is spread over names such as ``prefix.0.message.role``.

    Returns: [num_items], in order of their numbers, objects within objects; lists are objects by number.
    """
    items: dict[int, JsonObject] = {}
    for name, value in attributes.items():
        number, dot, path = name.removeprefix(f"{prefix}.").partition(".")
        if name.startswith(f"{prefix}.") and dot and _is_index(number):
            _put(items.setdefault(int(number), {}), path.split("."), value)
    return [items[number] for number in sorted(items)]


def in_order(numbered: object) -> list[JsonObject]:
    """Give the objects in an object whose names are numbers, in their order."""
    found = cast("JsonObject", numbered) if isinstance(numbered, dict) else {}
    items = [found[number] for number in sorted(filter(_is_index, found), key=int)]
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def _is_index(name: str) -> bool:
    return name.isdecimal() and len(name) <= _LONGEST_INDEX


def _put(target: JsonObject, path: list[str], value: object) -> None:
    for step in path[:-1]:
        below = target.setdefault(step, {})
        if not isinstance(below, dict):
            return
        target = cast("JsonObject", below)
    target[path[-1]] = value
