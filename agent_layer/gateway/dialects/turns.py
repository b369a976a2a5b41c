"""Turns of a conversation, translated between dialects, and their token usage."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest, Pieces, asks_something, build_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, EngineUsage, PromptDetails, ResponseDetails
from agent_layer.gateway.dialects.members import is_harmless
from agent_layer.schema import JsonObject, as_json_object, mend_surrogates

_TRUE, _ONE = msgspec.Raw(b"true"), msgspec.Raw(b"1")


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


def continue_last(messages: Sequence[object]) -> JsonObject:
    """Return the fields with which an engine goes on from a last message that is the beginning of the answer.

    Args:
        messages: chat messages. A text of the assistant alone begins an answer.
    """
    last = as_json_object(messages[-1]) if messages else {}
    is_beginning = last.get("role") == "assistant" and last.get("content") and last.keys() == {"role", "content"}
    return {"continue_final_message": True, "add_generation_prompt": False} if is_beginning else {}


_SEAL: Final = "agent-layer:"


def seal_reasoning(text: str) -> str:
    """Return reasoning as the opaque text that clients keep where they keep nothing else of it."""
    return _SEAL + base64.b64encode(text.encode()).decode()


def open_reasoning(sealed: object) -> str | None:
    """Return reasoning that was sealed here; None: another party sealed it, or nothing is sealed."""
    if not isinstance(sealed, str) or not sealed.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(sealed[len(_SEAL) :], validate=True).decode()
    except ValueError:
        return None


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
    dropped: Iterable[str] = (),
) -> ChatRequest:
    """Put a request together.

    Args:
        messages: chat messages, as values or JSON texts.
        fields: the other members of the chat request; those that are None are left out.
        client_fields: what the client sent.
        not_sampling: members of that which do not shape the answer.
        shaping: members that are left out though they would shape it.
        dropped: names of what is left out within members.

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
    lost = [
        name
        for name, piece in client_fields.items()
        if name in shaping and asks_something(piece) and not is_harmless(name, piece)
    ]
    return msgspec.structs.replace(
        request, is_respelled=True, not_applied=[*request.not_applied, *lost, *dict.fromkeys(dropped)]
    )


class SurrogateMender:
    """Mends JSON text that comes in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return what is mended by now. An escape that may go on waits for the next."""
        text = self._held + piece
        end = _find_whole(text)
        self._held = text[end:]
        return mend_surrogates(text[:end].encode()).decode()

    def finish(self) -> str:
        """Return the rest."""
        held, self._held = self._held, ""
        return mend_surrogates(held.encode()).decode()


_ESCAPE_LENGTH: Final = 6
_HIGH: Final = frozenset("89abAB")


def _find_whole(text: str) -> int:
    """Return where the last escape begins that the next piece may change; without one, the end."""
    at = max(0, len(text) - 2 * _ESCAPE_LENGTH + 1)
    while at and text[at - 1] == "\\":
        at -= 1  # an escaped backslash escapes nothing
    while (at := text.find("\\", at)) >= 0:
        following = text[at + 1 : at + _ESCAPE_LENGTH]
        if not following or (following[0] == "u" and len(following) < _ESCAPE_LENGTH - 1):
            return at
        if following[0] != "u":
            at += 2
            continue
        second = text[at + _ESCAPE_LENGTH : at + 2 * _ESCAPE_LENGTH]
        is_high = following[1] in "dD" and following[2] in _HIGH
        if is_high and len(second) < _ESCAPE_LENGTH and second[:2] in ("", "\\", "\\u"):
            return at
        at += _ESCAPE_LENGTH
    return len(text)
