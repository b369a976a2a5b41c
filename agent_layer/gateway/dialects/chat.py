"""This file holds the internal form of calls, chat completions: what is asked, and what the engine answers.

Every dialect is translated into it and back. Bodies are cut into raw JSON pieces, and only what the record needs is
decoded: messages, unknown fields and whatever else this file does not name pass through byte for byte.
"""

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError, EngineError
from agent_layer.schema.codec import check_storable
from agent_layer.schema.record import JsonObject, Logprobs, TokenIds
from agent_layer.schema.step import Action

__all__ = [
    "ChatAnswer",
    "ChatRequest",
    "EngineUsage",
    "LogprobList",
    "Pieces",
    "action_of",
    "read_answer",
    "read_pieces",
    "read_request",
    "request_of",
]

Pieces: TypeAlias = dict[str, msgspec.Raw]
"""A JSON object whose values are not decoded yet."""

_TRUE, _ABSENT = msgspec.Raw(b"true"), msgspec.Raw()
_LENGTHS: Final = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of one limit, of which engines prefer the second."""

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
    sampling_asked: JsonObject
    """The same in the words of the client's dialect."""
    asked: Pieces
    """What the client sent, in its dialect."""
    wants_logprobs: bool
    wants_token_ids: bool

    def for_engine(self, model: str, sampling: Mapping[str, object]) -> bytes:
        """Body for the engine: its model name, token ids and log-probabilities asked for, sampling overridden."""
        pieces = {**self.pieces, "model": _raw(model), "return_token_ids": _TRUE, "logprobs": _TRUE}
        for name, value in sampling.items():
            pieces[name] = _raw(value)
            if (other := _LENGTHS.get(name)) and other not in sampling:
                pieces.pop(other, None)
        return _ENCODER.encode(pieces)

    def for_provider(self, model: str) -> bytes:
        """Body for a server of another model: what the client asked, nothing added for the record."""
        pieces = {name: piece for name, piece in self.pieces.items() if name != "return_token_ids"}
        return _ENCODER.encode({**pieces, "model": _raw(model)})

    @property
    def model(self) -> str:
        """Name of the model that the client asks for; empty where it names none."""
        try:
            return _NAME.decode(self.asked.get("model", b'""'))
        except msgspec.DecodeError:
            return ""

    def rest(self) -> bytes:
        """Everything but the messages."""
        return b"".join([piece for name, piece in self.pieces.items() if name != "messages"])

    def role_of(self, message: int) -> str:
        """Who said a message."""
        return _ROLE.decode(self.messages[message]).role

    def message(self, index: int) -> JsonObject:
        """One message."""
        return _MESSAGE.decode(self.messages[index])


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


class PromptDetails(msgspec.Struct, gc=False):
    """Of the prompt's tokens."""

    cached_tokens: int | None = None


class ResponseDetails(msgspec.Struct, gc=False):
    """Of the sampled tokens."""

    reasoning_tokens: int | None = None


class EngineUsage(msgspec.Struct, gc=False):
    """What the engine counted."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: ResponseDetails | None = None


class _Choice(msgspec.Struct, gc=False):
    message: JsonObject
    token_ids: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    prompt_token_ids: msgspec.Raw = _ABSENT
    usage: EngineUsage | None = None


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine answered, without what was added for the record."""

    body: bytes
    """For a client that speaks this dialect; empty after a stream."""
    prompt_token_ids: TokenIds | None
    actions: list[Action]
    """[num_choices]."""
    usage: EngineUsage | None = None
    stop_reason: str | int | None = None
    """Which stop text or token ended the first choice."""


_ENCODER: Final = msgspec.json.Encoder()
_PIECES: Final = msgspec.json.Decoder(Pieces)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NAME: Final = msgspec.json.Decoder(str)
_ROLE: Final = msgspec.json.Decoder(_Role)
_MESSAGE: Final = msgspec.json.Decoder(JsonObject)
_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_IDS: Final = msgspec.json.Decoder(list[int] | None)
_LOGPROBS: Final = msgspec.json.Decoder(LogprobList | None)


def read_request(body: bytes) -> ChatRequest:
    """Read a client's body.

    Raises: BadInputError: it is no JSON object with a list of messages, or an integer has more than 64 bits.
    """
    try:
        pieces = _PIECES.decode(body)
        return request_of(pieces, _ITEMS.decode(pieces["messages"]))
    except (msgspec.DecodeError, KeyError) as error:
        raise BadInputError(
            f"chat request: expected a JSON object with a list of messages, found {error!r}; see OpenAI's chat API"
        ) from error


def read_pieces(body: bytes) -> Pieces:
    """Cut a body into the JSON texts of its members.

    Raises: msgspec.DecodeError: it is no JSON object.
    """
    return _PIECES.decode(body)


def request_of(
    pieces: Pieces,
    messages: list[msgspec.Raw],
    *,
    asked: Pieces | None = None,
    sampling_asked: JsonObject | None = None,
) -> ChatRequest:
    """Put a request together.

    Args:
        pieces: in the words of chat completions.
        messages: JSON texts.
        asked: what the client sent; None: the same.
        sampling_asked: the client's words for the sampling; None: the same.

    Raises: BadInputError: an integer has more than 64 bits.
    """
    sampling: JsonObject = {
        name: msgspec.json.decode(piece) for name, piece in pieces.items() if name not in _NOT_SAMPLING
    }
    check_storable(sampling, "request")
    return ChatRequest(
        pieces=pieces,
        messages=messages,
        tools=pieces.get("tools"),
        sampling=sampling,
        sampling_asked=sampling if sampling_asked is None else sampling_asked,
        asked=pieces if asked is None else asked,
        wants_logprobs=pieces.get("logprobs") == _TRUE,
        wants_token_ids=pieces.get("return_token_ids") == _TRUE,
    )


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
            usage=answer.usage,
            stop_reason=answer.choices[0].stop_reason,
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
