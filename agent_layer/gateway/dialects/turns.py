"""Turns of a conversation, translated between dialects, and their token usage."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import CHAT_FIELDS, ChatRequest, Pieces, build_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, EngineUsage, PromptDetails, ResponseDetails
from agent_layer.gateway.dialects.members import is_harmless
from agent_layer.schema import JsonObject

_MAX_GROWTH: Final = 8
"""How many times longer a long value may be when it is written again, with spaces and escapes."""
_LONG: Final = 1 << 16
_TRUE, _ONE = msgspec.Raw(b"true"), msgspec.Raw(b"1")
_NOTHING: Final = tuple(map(msgspec.Raw, (b"null", b"false", b"[]", b"{}", b'"disabled"')))


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens of a call; None: the engine does not say."""

    prompt: int
    sampled: int
    cached: int | None
    """Prompt tokens that were cached."""
    thought: int | None
    """Sampled tokens that were reasoning."""


def count_usage(answer: ChatAnswer) -> TokenCounts:
    """Count as the engine does, or, where it says nothing, the ids themselves."""
    found = answer.usage or EngineUsage()
    sampled = sum(len(action.response_token_ids or ()) for action in answer.actions)
    return TokenCounts(
        prompt=found.prompt_tokens or len(answer.prompt_token_ids or ()),
        sampled=found.completion_tokens or sampled,
        cached=(found.prompt_tokens_details or PromptDetails()).cached_tokens,
        thought=(found.completion_tokens_details or ResponseDetails()).reasoning_tokens,
    )


def show_sampled(answer: ChatAnswer, request: ChatRequest) -> JsonObject:
    """Return the ids themselves for a client that asked for them with ``return_token_ids``."""
    if not request.wants_token_ids or not answer.actions or answer.prompt_token_ids is None:
        return {}
    sampled = answer.actions[0].response_token_ids
    return {"prompt_token_ids": answer.prompt_token_ids.tolist(), "token_ids": sampled.tolist() if sampled else None}


_ENCODER: Final = msgspec.json.Encoder()


def encoded(value: object) -> msgspec.Raw:
    """Return a value as JSON text."""
    return value if isinstance(value, msgspec.Raw) else msgspec.Raw(_ENCODER.encode(value))


def text_part(text: str) -> JsonObject:
    """A text among the parts of a message."""
    return {"type": "text", "text": text}


def image_part(url: str, detail: object = None) -> JsonObject:
    """An image among the parts of a message."""
    image: JsonObject = {"url": url}
    return {"type": "image_url", "image_url": image | {"detail": detail} if detail else image}


def join_content(parts: list[JsonObject]) -> object:
    """Return parts as the content of a message; a single text becomes plain text."""
    match parts:
        case []:
            return ""
        case [{"type": "text", "text": str(text), **rest}] if not rest:
            return text
        case _:
            return parts


def objects_in(content: object) -> list[JsonObject]:
    """Return a content, text or list, as a list of objects."""
    if content is None:
        return []
    return [text_part(content)] if isinstance(content, str) else msgspec.convert(content, list[JsonObject])


def assistant_message(texts: Iterable[str], reasoning: Iterable[str], calls: list[JsonObject]) -> JsonObject:
    """Return the message of one turn; the same however it was split on its way."""
    text, thought = "".join(texts), "".join(reasoning)
    message: JsonObject = {"role": "assistant", "content": text if text or not calls else None}
    message |= {"reasoning": thought} if thought else {}
    return message | ({"tool_calls": calls} if calls else {})


def tool_call(call_id: str, name: str, arguments: str) -> JsonObject:
    """A call of a tool within such a message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: object, fields: Mapping[str, object]) -> JsonObject:
    """A tool that the model may call; fields that are None are left out."""
    return {"type": "function", "function": {"name": name} | _known(fields)}


def named_choice(name: str) -> JsonObject:
    """Return the choice that makes the model call this tool."""
    return {"type": "function", "function": {"name": name}}


class Format(msgspec.Struct):
    """How the other dialects ask for JSON."""

    type: str
    name: str = "output"
    schema: JsonObject | None = None
    description: str | None = None
    strict: bool | None = None

    def to_chat(self) -> JsonObject | None:
        """Return it as ``response_format``; None: text, as without one."""
        if self.type != "json_schema":
            return None if self.type == "text" else {"type": self.type}
        fields = {"schema": self.schema, "description": self.description, "strict": self.strict}
        return {"type": self.type, "json_schema": {"name": self.name} | _known(fields)}


def _known(fields: Mapping[str, object]) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def translated(
    messages: Iterable[object],
    fields: Mapping[str, object],
    client_fields: Pieces,
    not_sampling: frozenset[str],
    shaping: frozenset[str] = frozenset(),
) -> ChatRequest:
    """Put a request together.

    Args:
        messages: chat messages, as values or JSON texts.
        fields: the other members of the chat request; those that are None are left out.
        client_fields: what the client sent.
        not_sampling: members of that which do not shape the answer.
        shaping: members that are left out though they would shape it.

    Raises: BadInputError: several answers are wanted, or an integer has more than 64 bits.
    """
    pieces = {name: encoded(value) for name, value in _known(fields).items()}
    pieces = {name: piece for name, piece in pieces.items() if not is_harmless(name, piece)}
    if pieces.get("n", _ONE) != _ONE:
        raise BadInputError("request: expected n = 1, which alone this dialect can show; ask again for another answer")
    encoded_messages = [encoded(message) for message in messages]
    pieces["messages"] = encoded(encoded_messages)
    if pieces.get("stream") == _TRUE:
        pieces["stream_options"] = msgspec.Raw(b'{"include_usage":true}')
    wanted: JsonObject = {
        name: msgspec.json.decode(one)
        for name, one in client_fields.items()
        if name not in not_sampling and not is_harmless(name, one)
    }
    request = build_request(pieces, encoded_messages, client_fields=client_fields, sampling_asked=wanted)
    lost = [name for name in pieces if name not in CHAT_FIELDS] + [
        name for name, piece in client_fields.items() if name in shaping and not is_harmless(name, piece)
    ]
    return msgspec.structs.replace(
        request, not_applied=[name for name in lost if client_fields.get(name) not in _NOTHING]
    )


def are_equal_json(written: str, arguments: str) -> bool:
    """Whether both are JSON texts of one value; clients parse arguments and write them again."""
    if len(arguments) > max(_LONG, len(written) * _MAX_GROWTH):
        return False  # to parse it could stall the process, and no model wrote it
    try:
        return json.loads(written) == json.loads(arguments)
    except (ValueError, RecursionError):
        return False
