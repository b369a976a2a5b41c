"""Conversion between chat messages and messages of OpenTelemetry's GenAI conventions, which consist of parts.

Parts that only one side has a form for, such as images, stay unchanged. Also: reading of foreign JSON, and
references from one content to another, by which a value that many steps share is stored once.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

import msgspec

from agent_layer.schema.json_forms import MAX_DEPTH, UNREADABLE, read_json
from agent_layer.schema.record import JsonObject

MEDIA: Final = MappingProxyType(
    {
        "image_url": "images",
        "image_embeds": "images",
        "input_image": "images",
        "input_audio": "audio",
        "audio_url": "audio",
        "audio_embeds": "audio",
        "video_url": "video",
    }
)
"""Parts of chat messages that are no text, as OpenAI and vLLM name them, and findings of steps whose prompt has them.
A row for a trainer is token ids, which do not hold what such a part shows."""
_MEDIA_HINTS: Final = (b'"image_', b'"input_', b'"audio_', b'"video_')
_TEXTS: Final = ("role", "name", "reasoning", "reasoning_content")
_REFERENCE = "$content"
_MAX_REFERENCES: Final = 10_000
"""Agents may write references too: twenty contents that each refer twice to the previous one would be a million."""
TOO_DEEP: Final = "(nested too deeply to be shown)"
_MAX_SHOWN_DEPTH: Final = MAX_DEPTH + 16
"""Levels, those of references included: JSON allows what no reader can follow."""


def as_json_object(value: object) -> JsonObject:
    """Return a JSON object unchanged; {} for any other value."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_json_objects(value: object) -> list[JsonObject]:
    """Return the JSON objects of a list; [] for any other value."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def parse_json_text(value: object) -> object:
    """Decode a value that may be JSON text; other text, or JSON nested too deeply, stays text."""
    return read_json(value) if isinstance(value, str) else value


def readable_message(value: object) -> JsonObject:
    """Return a stored message as every reader can take it: an object whose tool calls are objects with a function.

    Agents and engines may have written anything. A value that is no object becomes the content of one.
    """
    if not isinstance(value, dict):
        return {"role": "unreadable", "content": value}
    message = cast("JsonObject", value)
    readable: JsonObject = {name: _as_text(one) for name in _TEXTS if (one := message.get(name)) is not None}
    calls = message.get("tool_calls")
    if calls is not None:
        items = cast("list[object]", calls) if isinstance(calls, list) else [calls]
        readable["tool_calls"] = [_readable_call(one) for one in items]
    return message | readable


def _readable_call(call: object) -> JsonObject:
    if not isinstance(call, dict):
        return {"function": {"arguments": call}}
    fields = cast("JsonObject", call)
    function = fields.get("function")
    return fields if function is None or isinstance(function, dict) else fields | {"function": {"arguments": function}}


def find_media(message: bytes) -> set[str]:
    """Return what a chat message shows besides text: ``images``, ``audio`` or ``video``.

    Args:
        message: JSON text; what is no chat message shows nothing.
    """
    if not any(hint in message for hint in _MEDIA_HINTS):
        return set()
    try:
        content = _SHOWN.decode(message).content
    except UNREADABLE:
        return set()
    parts = content if isinstance(content, list) else []
    return {MEDIA[part.type] for part in parts if part.type in MEDIA}


class _ShownPart(msgspec.Struct):
    type: str = ""


class _ShownMessage(msgspec.Struct):
    content: list[_ShownPart] | str | None = None


_SHOWN: Final = msgspec.json.Decoder(_ShownMessage)


def to_part_message(message: Mapping[str, object]) -> JsonObject:
    """Return a chat message as a message of parts."""
    role = message.get("role", "assistant")
    if role == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message.get("content")}
        return {"role": role, "parts": [answer]}
    parts = [_content_part(item) for item in _content_items(message.get("content"))]
    if reasoning := message.get("reasoning_content") or message.get("reasoning"):
        parts.insert(0, {"type": "reasoning", "content": reasoning})
    return {"role": role, "parts": [*parts, *map(_tool_call_part, as_json_objects(message.get("tool_calls")))]}


def to_chat_messages(message: Mapping[str, object]) -> Iterator[JsonObject]:
    """Return the chat messages of one message of parts; each tool answer becomes a message."""
    parts = as_json_objects(message.get("parts"))
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    if len(answers) < len(parts) or not parts:
        texts = [part for part in parts if part.get("type") != "tool_call_response"]
        yield _chat_message(str(message.get("role", "assistant")), texts)
    for part in answers:
        response = part.get("response", part.get("result"))
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": _as_text(response)}


def _chat_message(role: str, parts: Sequence[JsonObject]) -> JsonObject:
    shown = [part for part in parts if part.get("type") not in ("tool_call", "reasoning")]
    message: JsonObject = {"role": role, "content": _chat_content(shown)}
    if reasoning := "".join(str(part.get("content", "")) for part in parts if part.get("type") == "reasoning"):
        message["reasoning_content"] = reasoning
    if calls := [_chat_tool_call(part) for part in parts if part.get("type") == "tool_call"]:
        message["tool_calls"] = calls
    return message


def _chat_content(parts: Sequence[JsonObject]) -> object:
    """Return text when all parts are text, else a list; None without parts."""
    if any(part.get("type") != "text" for part in parts):
        return [_chat_part(part) for part in parts]
    return "".join(str(part.get("content", "")) for part in parts) if parts else None


def _chat_part(part: JsonObject) -> JsonObject:
    kind, modality = part.get("type"), part.get("modality")
    if kind == "text":
        return {"type": "text", "text": part.get("content")}
    if f"{modality}_url" not in MEDIA:
        return part
    if kind == "blob":
        url = f"data:{part.get('mime_type') or 'application/octet-stream'};base64,{part.get('content')}"
    else:
        url = part.get("uri") if kind == "uri" else None
    return part if url is None else {"type": f"{modality}_url", f"{modality}_url": {"url": url}}


def _content_items(content: object) -> list[object]:
    if isinstance(content, list):
        return cast("list[object]", content)
    return [content] if content else []


def _content_part(item: object) -> JsonObject:
    if not isinstance(item, dict):
        return {"type": "text", "content": str(item)}
    part = cast("JsonObject", item)
    return {"type": "text", "content": part.get("text")} if part.get("type") == "text" else part


def _tool_call_part(call: JsonObject) -> JsonObject:
    function = as_json_object(call.get("function"))
    arguments = parse_json_text(function.get("arguments"))
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _chat_tool_call(part: JsonObject) -> JsonObject:
    function = {"name": part.get("name"), "arguments": _as_text(part.get("arguments"))}
    return {"id": part.get("id"), "type": "function", "function": function}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def refer_to(content_hash: str) -> dict[str, str]:
    """Return the JSON that refers to the content of this hash."""
    return {_REFERENCE: content_hash}


def resolve(contents: Mapping[str, bytes], content_hash: str) -> object:
    """Return a content as JSON, with all references resolved.

    Args:
        contents: JSON text by content hash.
        content_hash: hash of the content.

    Returns:
        The value, see ``read_json``. References to missing contents, and those beyond the ten-thousandth, stay
        references; what is nested too deeply becomes ``TOO_DEEP``.
    """
    return _resolve(contents, content_hash, iter(range(_MAX_REFERENCES + 1)), 0)


def resolve_in(contents: Mapping[str, bytes], value: object) -> object:
    """Return a JSON value with the references inside it resolved, as ``resolve`` does."""
    return _resolve_in(contents, value, iter(range(_MAX_REFERENCES + 1)), 0)


def _resolve(contents: Mapping[str, bytes], content_hash: str, left: Iterator[int], depth: int) -> object:
    body = contents.get(content_hash)
    if body is None or next(left, None) is None:
        return refer_to(content_hash)
    return _resolve_in(contents, read_json(body), left, depth)


def _resolve_in(contents: Mapping[str, bytes], value: object, left: Iterator[int], depth: int) -> object:
    if not isinstance(value, list | dict):
        return value
    if depth > _MAX_SHOWN_DEPTH:
        return TOO_DEEP
    if isinstance(value, list):
        return [_resolve_in(contents, item, left, depth + 1) for item in cast("list[object]", value)]
    fields = cast("dict[str, object]", value)
    if fields.keys() == {_REFERENCE} and isinstance(target := fields[_REFERENCE], str):
        return _resolve(contents, target, left, depth + 1)
    return {key: _resolve_in(contents, item, left, depth + 1) for key, item in fields.items()}
