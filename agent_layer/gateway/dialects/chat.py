"""This file holds OpenAI's chat completions: what a client asks, what the engine is asked, what both are answered.

Bodies are cut into raw JSON pieces and put together again, never decoded as a whole: messages, unknown fields and
whatever else this file does not name pass through byte for byte.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from agent_layer.errors import BadInputError, EngineError
from agent_layer.schema.record import JsonObject, Logprobs, TokenIds
from agent_layer.schema.step import Action

__all__ = ["ChatAnswer", "ChatRequest", "Pieces", "action_of", "read_answer", "read_request", "token_ids_of", "visible"]

Pieces = dict[str, msgspec.Raw]
"""A JSON object whose values are not decoded yet."""

_PIECES: Final = msgspec.json.Decoder(Pieces)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_CHOICES: Final = msgspec.json.Decoder(list[Pieces])
_IDS: Final = msgspec.json.Decoder(list[int])
_MESSAGE: Final = msgspec.json.Decoder(JsonObject)
_ENCODER: Final = msgspec.json.Encoder()
_TRUE, _NULL = msgspec.Raw(b"true"), msgspec.Raw(b"null")

_NOT_SAMPLING = frozenset(
    {"messages", "tools", "model", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "user"}
    | {"metadata", "store"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What a client asks."""

    pieces: Pieces
    messages: list[msgspec.Raw]
    """JSON texts, as sent."""
    tools: msgspec.Raw | None
    sampling: JsonObject
    """Everything that shapes the answer besides messages and tools."""
    stream: bool
    wants_logprobs: bool
    wants_token_ids: bool

    def for_engine(self, model: str, sampling: Mapping[str, object]) -> bytes:
        """Body for the engine: its model name, token ids and log-probabilities asked for, sampling overridden."""
        pieces = {**self.pieces, "model": _raw(model), "return_token_ids": _TRUE, "logprobs": _TRUE}
        pieces |= {name: _raw(value) for name, value in sampling.items()}
        return _ENCODER.encode(pieces)

    def role_of(self, message: int) -> str:
        """Who said a message."""
        return _ROLE.decode(self.messages[message]).role


class _Role(msgspec.Struct):
    role: str = ""


_ROLE: Final = msgspec.json.Decoder(_Role)


class _LogprobEntry(msgspec.Struct):
    logprob: float


class LogprobPiece(msgspec.Struct):
    """The log-probabilities of a choice, or of a chunk of it."""

    content: list[_LogprobEntry] | None = None


_LOGPROBS: Final = msgspec.json.Decoder(LogprobPiece | None)


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine answered, without what was added for the record."""

    body: bytes
    """For the client."""
    prompt_token_ids: TokenIds | None
    actions: list[Action]
    """[num_choices]."""


def read_request(body: bytes) -> ChatRequest:
    """Read a client's body.

    Raises: BadInputError: it is no JSON object with a list of messages.
    """
    try:
        pieces = _PIECES.decode(body)
        return ChatRequest(
            pieces=pieces,
            messages=_ITEMS.decode(pieces["messages"]),
            tools=pieces.get("tools"),
            sampling={name: msgspec.json.decode(piece) for name, piece in pieces.items() if name not in _NOT_SAMPLING},
            stream=_is_true(pieces.get("stream")),
            wants_logprobs=_is_true(pieces.get("logprobs")),
            wants_token_ids=_is_true(pieces.get("return_token_ids")),
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise BadInputError(
            f"chat request: expected a JSON object with a list of messages, found {error!r}; see OpenAI's chat API"
        ) from error


def read_answer(body: bytes, request: ChatRequest, version: int) -> ChatAnswer:
    """Read the engine's whole answer.

    Args:
        body: JSON text.
        request: what the client asked, which decides what it gets back.
        version: policy version that the engine serves.

    Raises: EngineError: it is no chat completion.
    """
    try:
        top = _PIECES.decode(body)
        choices = _CHOICES.decode(top["choices"])
        actions = [
            action_of(
                _MESSAGE.decode(choice["message"]),
                ids=token_ids_of(choice.get("token_ids")),
                logprobs=logprobs_of([_LOGPROBS.decode(choice.get("logprobs", _NULL))]),
                finish_reason=msgspec.json.decode(choice.get("finish_reason", _NULL), type=str | None),
                version=version,
            )
            for choice in choices
        ]
        prompt_token_ids = token_ids_of(top.get("prompt_token_ids"))
    except (msgspec.DecodeError, KeyError) as error:
        raise EngineError(
            f"engine's answer: expected a chat completion, found {error!r}; is it an OpenAI-compatible server?"
        ) from error
    return ChatAnswer(body=visible(top, choices, request) or body, prompt_token_ids=prompt_token_ids, actions=actions)


def visible(top: Pieces, choices: list[Pieces], request: ChatRequest) -> bytes | None:
    """Leave out what the client did not ask for; None when nothing is left out. Changes ``top`` and ``choices``."""
    changed = False
    if not request.wants_token_ids:
        changed = top.pop("prompt_token_ids", None) is not None
        for choice in choices:
            changed |= choice.pop("token_ids", None) is not None
    if not request.wants_logprobs:
        for choice in choices:
            changed |= "logprobs" in choice
            choice["logprobs"] = _NULL
    return _ENCODER.encode({**top, "choices": choices}) if changed else None


def action_of(
    message: JsonObject, *, ids: TokenIds | None, logprobs: Logprobs | None, finish_reason: str | None, version: int
) -> Action:
    """Record one choice."""
    return Action(
        message=message,
        response_token_ids=ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        policy_versions=[(version, len(ids))] if ids else None,
    )


def token_ids_of(piece: msgspec.Raw | None) -> TokenIds | None:
    """Read a list of ids; None where there is none."""
    return None if piece is None or piece == _NULL else TokenIds(_IDS.decode(piece))


def logprobs_of(found: Iterable[LogprobPiece | None]) -> Logprobs | None:
    """Join the log-probabilities of chunks; None where there are none at all."""
    known = [piece.content for piece in found if piece is not None and piece.content is not None]
    return Logprobs([entry.logprob for content in known for entry in content]) if known else None


def _is_true(piece: msgspec.Raw | None) -> bool:
    return piece is not None and piece == _TRUE


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))
