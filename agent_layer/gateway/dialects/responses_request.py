"""This file holds how a request of OpenAI's responses API is said as a chat completion."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest, Pieces, read_pieces
from agent_layer.gateway.dialects.responses_items import messages_of
from agent_layer.gateway.dialects.turns import (
    Format,
    encoded,
    function_tool,
    named_choice,
    objects_in,
    translated,
)
from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["TalkOf", "read_responses"]

TalkOf: TypeAlias = Callable[[str], Sequence[msgspec.Raw]]
"""Response id → all messages up to and with that answer."""

_NO_PLACE = frozenset(
    {"metadata", "include", "store", "truncation", "service_tier", "stream_options", "max_tool_calls", "moderation"}
    | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "context_management"}
    | {"background"}
)
"""What an engine has no use for; recorded with the sampling asked, and left out."""
_TRANSLATED = frozenset(
    {"input", "instructions", "previous_response_id", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"}
)
_NOT_SAMPLING = frozenset(
    {"input", "instructions", "previous_response_id", "tools", "model", "stream", "stream_options", "include", "store"}
    | {"metadata", "user", "return_token_ids"}
)
_SHOW_LOGPROBS = "message.output_text.logprobs"
_UNSUPPORTED = ("background", "conversation", "prompt")


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class _Text(msgspec.Struct):
    format: Format | None = None
    verbosity: str | None = None


class _Body(msgspec.Struct):
    input: str | list[JsonObject] = []
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | JsonObject | None = None
    text: _Text | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: int | None = None
    background: bool | None = None
    conversation: object = None
    prompt: object = None
    include: list[str] | None = None
    store: bool | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def read_responses(body: bytes, talk_of: TalkOf) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        talk_of: finds what a previous response continued and said.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    try:
        return _request_of(_BODY.decode(body), read_pieces(body), talk_of)
    except UNREADABLE as error:
        raise BadInputError(
            f"responses request: expected a body of OpenAI's responses API, found {error}; see its reference"
        ) from error


def _request_of(asked: _Body, pieces: Pieces, talk_of: TalkOf) -> ChatRequest:
    for name in _UNSUPPORTED:
        if getattr(asked, name):
            raise BadInputError(f"responses request: expected no {name}, which the gateway cannot do; leave it out")
    items: list[JsonObject] = (
        [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
    )
    said = [encoded(message) for message in messages_of(items)]
    before = talk_of(asked.previous_response_id) if asked.previous_response_id else ()
    system = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
    request = translated([*system, *before, *said], _fields(asked, pieces), pieces, _NOT_SAMPLING)
    return msgspec.structs.replace(request, shows_logprobs=_SHOW_LOGPROBS in (asked.include or []))


def _fields(asked: _Body, pieces: Pieces) -> JsonObject:
    """Everything but the messages."""
    text, reasoning = asked.text or _Text(), asked.reasoning or {}
    return {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": asked.max_output_tokens,
        "tools": [_tool(tool) for tool in asked.tools] if asked.tools else None,
        "tool_choice": _choice(asked.tool_choice),
        "response_format": text.format.told() if text.format else None,
        "verbosity": text.verbosity,
        "reasoning_effort": reasoning.get("effort"),
    }


def _tool(tool: _Tool) -> JsonObject:
    if tool.type != "function" or tool.name is None:
        raise BadInputError(
            f"tool: expected type 'function' with a name, found type {tool.type!r}, which only OpenAI's own servers"
            " run; give the agent a function that it runs itself"
        )
    fields = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return function_tool(tool.name, fields)


def _choice(choice: str | JsonObject | None) -> object:
    match choice:
        case {"type": "function", "name": str(name)}:
            return named_choice(name)
        case {"type": "allowed_tools", "mode": mode, "tools": tools}:
            allowed = [named_choice(str(tool.get("name"))) for tool in objects_in(tools)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
        case _:
            return choice
