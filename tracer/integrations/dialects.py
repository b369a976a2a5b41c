"""This file holds what a dialect is to the tracer: the words in which one kind of request and its answers are said."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, cast

import msgspec

from agent_layer.schema.record import JsonObject
from agent_layer.schema.step import Action
from tracer.calls import Answer, Asked
from tracer.contents import json_value

__all__ = ["Dialect", "kind_of", "objects_of", "sampling_of", "say_assistant", "text_of", "tool_call", "understand"]


class _ReadStream(Protocol):
    def __call__(self, chunks: Iterable[str], *, is_whole: bool) -> Answer: ...


class Dialect(NamedTuple):
    """How requests and answers are read; what is read is recorded in the words of chat completions. All pure."""

    read_request: Callable[[Mapping[str, object]], Asked]
    read_answer: Callable[[bytes], Answer]
    """Reads an answer that came in one piece."""
    read_stream: _ReadStream
    """Puts an answer together from the data of its events; one that is not whole counts as aborted."""
    is_last: Callable[[str], bool]
    """Tells from an event's data whether it says that the answer is whole."""


def understand(read: Callable[[], Answer], *, is_whole: bool = True) -> Answer:
    """Read an answer: there was one, even where it does not have the dialect's form.

    Args:
        read: gives it, or raises msgspec.DecodeError.
        is_whole: False where nobody read it to its end: it counts as aborted.
    """
    try:
        answer = read()
    except msgspec.DecodeError as error:
        answer = Answer(findings=["answer_not_understood"], error=str(error))
    return answer if is_whole else msgspec.structs.replace(answer, status="aborted")


class _Kind(msgspec.Struct):
    type: str = ""


def kind_of(event: str) -> str:
    """Give the ``type`` of an event; '' where it has none."""
    try:
        return msgspec.json.decode(event, type=_Kind).type
    except msgspec.DecodeError:
        return ""


def sampling_of(body: Mapping[str, object], others: frozenset[str]) -> JsonObject:
    """Give the fields of a request that say how to sample: all but ``others``."""
    return cast("JsonObject", json_value({name: body[name] for name in body.keys() - others}))


def objects_of(items: object) -> list[JsonObject]:
    """Give the items of a list as JSON objects, a client's own records as what they stand for; [] for anything else.

    An item that is no object, which the server will refuse, is the content of one.
    """
    if not isinstance(items, list | tuple):
        return []
    return [_object_of(item) for item in cast("Iterable[object]", items)]


def _object_of(item: object) -> JsonObject:
    told = cast("object", item) if isinstance(item, dict) else json_value(item)
    return cast("JsonObject", told) if isinstance(told, dict) else {"content": told}


def text_of(content: object, kinds: frozenset[str]) -> object:
    """Give a content as one text when it consists of texts only, which are parts of one of these types."""
    parts = objects_of(content)
    if parts and all(part.get("type") in kinds for part in parts):
        return "".join(str(part.get("text") or "") for part in parts)
    return parts or content


def say_assistant(text: str, calls: list[JsonObject], finish_reason: str | None) -> Action:
    """Give what the model said as a chat message."""
    message: JsonObject = {"role": "assistant", "content": text if text or not calls else None}
    return Action(message=message | ({"tool_calls": calls} if calls else {}), finish_reason=finish_reason)


def tool_call(identity: object, name: object, arguments: object) -> JsonObject:
    """Give one tool call as a chat message holds it; ``arguments`` are JSON text."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
