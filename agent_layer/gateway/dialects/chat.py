"""This file holds OpenAI's chat completions: what a client asks, what the engine is asked, what both are answered.

Bodies are cut into raw JSON pieces, and only what the record needs is decoded: messages, unknown fields and whatever
else this file does not name pass through byte for byte.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError, EngineError
from agent_layer.schema.codec import check_storable
from agent_layer.schema.record import JsonObject, Logprobs, TokenIds
from agent_layer.schema.step import Action

__all__ = ["ChatAnswer", "ChatRequest", "LogprobList", "action_of", "read_answer", "read_request"]

Pieces: TypeAlias = dict[str, msgspec.Raw]
"""A JSON object whose values are not decoded yet."""

_TRUE, _ABSENT = msgspec.Raw(b"true"), msgspec.Raw()

_NOT_SAMPLING = frozenset(
    {"messages", "tools", "model", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "user"}
    | {"metadata", "store"}
)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks."""

    pieces: Pieces
    messages: list[msgspec.Raw]
    """JSON texts, as sent."""
    tools: msgspec.Raw | None
    sampling: JsonObject
    """Everything that shapes the answer besides messages and tools."""
    wants_logprobs: bool
    wants_token_ids: bool

    def for_engine(self, model: str, sampling: Mapping[str, object]) -> bytes:
        """Body for the engine: its model name, token ids and log-probabilities asked for, sampling overridden."""
        pieces = {**self.pieces, "model": _raw(model), "return_token_ids": _TRUE, "logprobs": _TRUE}
        pieces |= {name: _raw(value) for name, value in sampling.items()}
        return _ENCODER.encode(pieces)

    def rest(self) -> bytes:
        """Everything but the messages."""
        return b"".join([piece for name, piece in self.pieces.items() if name != "messages"])

    def role_of(self, message: int) -> str:
        """Who said a message."""
        return _ROLE.decode(self.messages[message]).role


class _Role(msgspec.Struct):
    role: str = ""


class LogprobEntry(msgspec.Struct, gc=False):
    """What is read of one sampled token."""

    logprob: float


class LogprobList(msgspec.Struct, gc=False):
    """The log-probabilities of a choice, or of a chunk of it."""

    content: list[LogprobEntry] | None = None

    @property
    def values(self) -> list[float]:
        """One for each token."""
        return [entry.logprob for entry in self.content or ()]


class _Choice(msgspec.Struct, gc=False):
    message: JsonObject
    token_ids: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    finish_reason: str | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice]
    prompt_token_ids: msgspec.Raw = _ABSENT


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine answered, without what was added for the record."""

    body: bytes
    """For the client."""
    prompt_token_ids: TokenIds | None
    actions: list[Action]
    """[num_choices]."""


_ENCODER: Final = msgspec.json.Encoder()
_PIECES: Final = msgspec.json.Decoder(Pieces)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ROLE: Final = msgspec.json.Decoder(_Role)
_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_IDS: Final = msgspec.json.Decoder(list[int] | None)
_LOGPROBS: Final = msgspec.json.Decoder(LogprobList | None)


def read_request(body: bytes) -> ChatRequest:
    """Read a client's body.

    Raises: BadInputError: it is no JSON object with a list of messages, or an integer has more than 64 bits.
    """
    try:
        pieces = _PIECES.decode(body)
        request = ChatRequest(
            pieces=pieces,
            messages=_ITEMS.decode(pieces["messages"]),
            tools=pieces.get("tools"),
            sampling={name: msgspec.json.decode(piece) for name, piece in pieces.items() if name not in _NOT_SAMPLING},
            wants_logprobs=pieces.get("logprobs") == _TRUE,
            wants_token_ids=pieces.get("return_token_ids") == _TRUE,
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise BadInputError(
            f"chat request: expected a JSON object with a list of messages, found {error!r}; see OpenAI's chat API"
        ) from error
    check_storable(request.sampling, "chat request")
    return request


def read_answer(body: bytes, request: ChatRequest, version: int) -> ChatAnswer:
    """Read the engine's whole answer.

    Args:
        body: JSON text.
        request: what the client asked, which decides what it gets back.
        version: policy version that the engine serves.

    Raises: EngineError: it is no chat completion.
    """
    try:
        answer = _COMPLETION.decode(body)
        return ChatAnswer(
            body=_visible(body, answer, request),
            prompt_token_ids=_ids_of(answer.prompt_token_ids),
            actions=[
                action_of(
                    choice.message, _ids_of(choice.token_ids), _logprobs_of(choice), choice.finish_reason, version
                )
                for choice in answer.choices
            ],
        )
    except msgspec.DecodeError as error:
        raise EngineError(
            f"engine's answer: expected a chat completion, found {error!r}; is it an OpenAI-compatible server?"
        ) from error


def action_of(
    message: JsonObject, ids: TokenIds | None, logprobs: Logprobs | None, finish_reason: str | None, version: int
) -> Action:
    """Record one choice."""
    return Action(
        message=message,
        response_token_ids=ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        policy_versions=[(version, len(ids))] if ids else None,
    )


def _visible(body: bytes, answer: _Completion, request: ChatRequest) -> bytes:
    """Leave out what the client did not ask for."""
    if not request.wants_token_ids:
        body = _without(body, b'"prompt_token_ids":', answer.prompt_token_ids)
        for choice in answer.choices:
            body = _without(body, b'"token_ids":', choice.token_ids)
    if not request.wants_logprobs:
        for choice in answer.choices:
            body = _without(body, b'"logprobs":', choice.logprobs)
    return body


def _without(body: bytes, member: bytes, value: msgspec.Raw) -> bytes:
    """Put null in place of a member's value. Inside a JSON string its quotes would be escaped, so no text matches."""
    if (found := bytes(value)) in (b"", b"null"):
        return body
    at = body.find(member)
    while at >= 0:
        begin = at + len(member)
        if body.startswith(b" ", begin):
            begin += 1
        if body.startswith(found, begin):
            return b"%bnull%b" % (body[:begin], body[begin + len(found) :])
        at = body.find(member, begin)
    return body


def _ids_of(piece: msgspec.Raw) -> TokenIds | None:
    ids = None if piece == _ABSENT else _IDS.decode(piece)
    return None if ids is None else TokenIds(ids)


def _logprobs_of(choice: _Choice) -> Logprobs | None:
    found = None if choice.logprobs == _ABSENT else _LOGPROBS.decode(choice.logprobs)
    return None if found is None or found.content is None else Logprobs(found.values)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))
