"""OpenAI's own form: chat completions, the gateway's internal form; and plain completions and embeddings.

The last two go to the engine in the client's words, and the client reads the engine's. They are side calls: a policy
that is trained on chats learns nothing from a prompt without a template, nor from a vector.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import (
    SIDE_FIELDS,
    ChatRequest,
    Endpoint,
    asks_something,
    build_request,
    read_request,
)
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, EngineUsage
from agent_layer.gateway.dialects.chat_stream import ChatStream, ends
from agent_layer.gateway.dialects.refusals import describe_garbage, openai_error
from agent_layer.schema import UNREADABLE, Action, JsonObject, mend_surrogates
from agent_layer.translation import Pieces, is_harmless, read_pieces


class Completions:
    """OpenAI's ``/v1/chat/completions``."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:  # noqa: ARG002  # nothing is remembered for it
        """Read a client's body."""
        request = read_request(body)
        if "function" not in request.roles:
            return request
        return msgspec.structs.replace(request, not_applied=[*request.not_applied, "messages.function"])

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:  # noqa: ARG002  # the body says it all
        """Return the engine's own body, without what was added for the record."""
        return answer.body

    def stream(self, exchange: Exchange) -> ChatStream:
        """Pass bytes on as they come."""
        return ChatStream(exchange.request, exchange.num_choices)


@dataclass(frozen=True, slots=True)
class SideEndpoint:
    """A prompt of texts or token ids, without messages. Texts and counts of tokens are recorded, and no vector."""

    endpoint: Endpoint
    prompt: str
    """Member of the body that holds it."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:  # noqa: ARG002  # nothing is remembered for it
        """Read a client's body."""
        return _read_side_request(body, self.endpoint, self.prompt)

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:  # noqa: ARG002  # the body says it all
        """Return the engine's own body."""
        return answer.body

    def stream(self, exchange: Exchange) -> "PlainStream":
        """Pass bytes on as they come."""
        return PlainStream(exchange.num_choices)


def _read_side_request(body: bytes, endpoint: Endpoint, prompt: str) -> ChatRequest:
    """Read a body whose prompt, texts or token ids, stands in this member.

    Raises: BadInputError: it is no JSON object, has no prompt, or an integer has more than 64 bits.
    """
    try:
        pieces = read_pieces(body)
        texts = _PROMPT.decode(pieces.get(prompt, b"null"))
        message: JsonObject = {"role": "user", "content": texts if isinstance(texts, str) else _as_parts(texts)}
        messages = [msgspec.Raw(msgspec.json.encode(message))]
        chat: Pieces = {name: piece for name, piece in pieces.items() if name != prompt}
        chat["messages"] = msgspec.Raw(msgspec.json.encode(messages))
        request = build_request(chat, messages, client_fields=pieces)
    except UNREADABLE as error:
        raise BadInputError(
            f"{endpoint} request: expected a JSON object with {prompt!r}, texts or token ids, found {error}; see"
            " OpenAI's reference"
        ) from error
    known = SIDE_FIELDS[endpoint]
    left_out = [name for name in pieces if name not in known and asks_something(pieces[name])]
    return msgspec.structs.replace(
        request,
        endpoint=endpoint,
        side_call=endpoint,
        sampling={name: value for name, value in request.sampling.items() if name in known},
        not_applied=sorted(name for name in left_out if not is_harmless(name, pieces[name])),
    )


def _as_parts(texts: list[str] | list[int] | list[list[int]]) -> list[JsonObject]:
    """Return several texts as parts of one message; token ids stand there as JSON."""
    listed = [texts] if texts and isinstance(texts[0], int) else texts
    shown = [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in listed]
    return [{"type": "text", "text": one} for one in shown]


_PROMPT: Final = msgspec.json.Decoder(str | list[str | int | list[int]])


class _PlainChoice(msgspec.Struct, gc=False):
    text: str = ""
    index: int = 0
    finish_reason: str | None = None


class _PlainChunk(msgspec.Struct, gc=False):
    choices: list[_PlainChoice] = []
    usage: EngineUsage | None = None
    error: JsonObject | str | None = None


class _Plain(msgspec.Struct, gc=False):
    choices: Annotated[list[_PlainChoice], msgspec.Meta(min_length=1)]
    usage: EngineUsage | None = None


class _Vectors(msgspec.Struct, gc=False):
    data: list[msgspec.Raw]
    usage: EngineUsage | None = None


_CHUNK: Final = msgspec.json.Decoder(_PlainChunk)
_ANSWER: Final = msgspec.json.Decoder(_Plain)
_VECTORS: Final = msgspec.json.Decoder(_Vectors)


def read_side_answer(body: bytes, endpoint: Endpoint) -> ChatAnswer:
    """Read an engine's whole answer at another endpoint than chat completions.

    Raises: EngineError: it is none.
    """
    body = mend_surrogates(body)
    try:
        if endpoint == "embeddings":
            usage, actions = _VECTORS.decode(body).usage, [Action(finish_reason="stop")]
        else:
            plain = _ANSWER.decode(body)
            usage, actions = plain.usage, _write_actions(plain.choices)
    except UNREADABLE as error:
        raise EngineError(
            f"engine's answer: expected one of /v1/{endpoint}, found {describe_garbage(body)} ({error}); is it an"
            " OpenAI-compatible server?"
        ) from error
    return ChatAnswer(body=body, prompt_token_ids=None, actions=actions, usage=usage)


def _write_actions(choices: list[_PlainChoice]) -> list[Action]:
    return [
        Action(message={"role": "assistant", "content": one.text}, finish_reason=one.finish_reason)
        for one in sorted(choices, key=lambda one: one.index)
    ]


@dataclass(slots=True)
class PlainStream:
    """A plain completion that is still coming; what cannot be read of it is the client's all the same."""

    num_choices: int = 1
    is_done: bool = False
    error: str | None = None
    _rest: bytes = b""
    _usage: EngineUsage | None = None
    _texts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    _reasons: dict[int, str] = field(default_factory=dict[int, str])

    def feed(self, received: bytes) -> bytes:
        """See ``AnswerStream``. Half a line waits for its other half."""
        lines, newline, self._rest = (self._rest + received).rpartition(b"\n")
        if not newline:
            return b""
        lines = mend_surrogates(lines)
        self.is_done = self.is_done or ends(lines)
        for line in lines.split(b"\n"):
            if line.startswith(b"data:") and line[5:].lstrip().startswith(b"{"):
                self._take(line[5:])
        return lines + newline

    def _take(self, event: bytes) -> None:
        try:
            chunk = _CHUNK.decode(event)
        except UNREADABLE as error:
            self.error = f"the engine sent an event that cannot be read: {error}"
            return
        if chunk.error is not None:
            self.error = msgspec.json.encode(chunk.error).decode()
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._texts.setdefault(choice.index, []).append(choice.text)
            if choice.finish_reason is not None:
                self._reasons[choice.index] = choice.finish_reason

    def fail(self, message: str) -> bytes:
        """See ``AnswerStream``."""
        self.error = message
        return b"data: %b\n\n" % msgspec.json.encode(openai_error(502, "engine_failed", message))

    def answer(self, version: int) -> ChatAnswer:  # noqa: ARG002  # no token of it is known
        """See ``AnswerStream``."""
        choices = [
            _PlainChoice(text="".join(texts), index=index, finish_reason=self._reasons.get(index))
            for index, texts in self._texts.items()
        ]
        return ChatAnswer(body=b"", prompt_token_ids=None, actions=_write_actions(choices), usage=self._usage)

    @property
    def is_complete(self) -> bool:
        """See ``AnswerStream``."""
        return len(self._texts) >= max(1, self.num_choices) and self._reasons.keys() == self._texts.keys()
