"""Requests of other dialects as chat requests, and token usage of their answers."""

from collections.abc import Sequence
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest, asks_something, build_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, EngineUsage, PromptDetails, ResponseDetails
from agent_layer.schema import UNREADABLE, JsonObject, mend_surrogates
from agent_layer.translation import HOSTED, Translation, encoded, is_harmless

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


def translated(source: Translation, before: Sequence[msgspec.Raw] = (), tools: object = None) -> ChatRequest:
    """Put a request together.

    Args:
        source: what the client asks.
        before: chat messages that stand before its own.
        tools: those of a request that has none.

    Raises:
        BadInputError: it holds what no engine can be asked or that cannot be read, several answers are wanted, or an
            integer has more than 64 bits.
    """
    source.check_askable()
    fields = source.fields if tools is None else {**source.fields, "tools": source.fields.get("tools") or tools}
    pieces = {name: encoded(value) for name, value in fields.items() if value is not None}
    pieces = {name: piece for name, piece in pieces.items() if not is_harmless(name, piece)}
    if pieces.get("n", _ONE) != _ONE:
        raise BadInputError("request: expected n = 1, which alone this dialect can show; ask again for another answer")
    encoded_messages = [encoded(message) for message in (*source.system, *before, *source.messages)]
    pieces["messages"] = encoded(encoded_messages)
    if pieces.get("stream") == _TRUE:
        pieces["stream_options"] = msgspec.Raw(b'{"include_usage":true}')
    client_fields = source.client_fields
    try:
        sampling = source.read_sampling()
        request = build_request(pieces, encoded_messages, client_fields=client_fields, sampling_asked=sampling)
    except UNREADABLE as error:
        raise BadInputError(f"request: expected members that can be read, found {error}; correct them") from error
    lost = [
        name
        for name, piece in client_fields.items()
        if name in source.shaping and asks_something(piece) and not is_harmless(name, piece)
    ]
    return msgspec.structs.replace(
        request,
        is_respelled=True,
        shows_logprobs=source.shows_logprobs,
        not_applied=[*request.not_applied, *lost, *source.losses.names],
    )


def refuse_hosted(request: ChatRequest) -> None:
    """Raises: BadInputError: tools of the request are left out, because only another party's servers run them."""
    names = [name.removeprefix(HOSTED) for name in request.not_applied if name.startswith(HOSTED)]
    if names:
        raise BadInputError(
            f"tools: expected functions that the agent runs itself, found type {', '.join(names)}, which only servers"
            " of another party know; leave them out, or set AGENT_LAYER_HOSTED_TOOLS=leave_out"
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
