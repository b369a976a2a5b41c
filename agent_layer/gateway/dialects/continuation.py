"""Answers sampled in several requests: the first is a chat, the others continue it from its token ids.

Not every request can be continued, because an engine continues text, not messages. Anything that an engine must know
of earlier messages, or does to an answer afterwards, rules it out. Then the gateway waits for the engine.

The client reads one streamed chat completion, or a whole one. It sees nothing before the first token, so up to there
the gateway may send the chat again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.engines import NEUTRAL_SAMPLING, is_neutral
from agent_layer.errors import EngineError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema import UNREADABLE, GrowingMessage, JsonObject, derive_seed

_SAME: Final = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos"}
    | {"skip_special_tokens"}
)
"""Means the same for a text as for a chat, and the same in its middle as at its beginning."""
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
"""Names of the length limit, in the order in which engines prefer them."""
_KNOWN: Final = _SAME.union(_LENGTHS, ("n", "seed", "chat_template_kwargs"))
_NONE: Final = (b"null", b"0", b"[]")


def supports_continuation(request: ChatRequest, sampling: JsonObject) -> bool:
    """Whether an answer to this request can be continued from what was sampled of it.

    Args:
        request: what is asked.
        sampling: what the engine is asked for in the end.
    """
    is_known = all(name in _KNOWN or value is None or is_neutral(name, value) for name, value in sampling.items())
    is_one = sampling.get("n") in (None, 1)
    is_repeated = request.sampling.get("seed") is not None  # its client expects the answer of one request
    is_bare = all(bytes(request.pieces.get(name, b"null")) in _NONE for name in ("tools", "top_logprobs"))
    return (
        is_known
        and is_one
        and not is_repeated
        and is_bare
        and _read_limit(sampling) is not None
        and _is_read_at_its_end(request)
    )


def _read_limit(sampling: Mapping[str, object]) -> int | None:
    """Most tokens that may be sampled; None: as many as there is room for, which a completion cannot be asked for."""
    found = [sampling[name] for name in _LENGTHS if sampling.get(name) is not None]
    return found[0] if found and isinstance(found[0], int) else None


def continuation_body(
    model: str, sampling: Mapping[str, object], prompt: list[int], sampled: list[int], *, with_usage: bool
) -> bytes:
    """Body that asks for the rest of an answer.

    Args:
        model: its name at the engine.
        sampling: of the whole answer.
        prompt: ids that the chat was rendered to.
        sampled: ids that were answered.
        with_usage: the stream is to end with what was used.
    """
    sampling_fields: JsonObject = {
        name: value for name, value in sampling.items() if name in _SAME or name in NEUTRAL_SAMPLING
    }
    sampling_fields |= {
        "model": model,
        "prompt": [*prompt, *sampled],
        "stream": True,
        "return_token_ids": True,
        "logprobs": 0,
    }
    sampling_fields |= {"max_tokens": (_read_limit(sampling) or 0) - len(sampled)}
    if isinstance(seed := sampling.get("seed"), int):
        sampling_fields["seed"] = derive_seed(
            seed, len(sampled)
        )  # the same seed would draw the first tokens' numbers again
    return msgspec.json.encode(sampling_fields | ({"stream_options": {"include_usage": True}} if with_usage else {}))


class StreamOptions(msgspec.Struct):
    """What a stream reports besides its chunks."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


def read_stream_options(request: ChatRequest) -> StreamOptions:
    """Raises: UNREADABLE: they are something else."""
    return _OPTIONS.decode(request.pieces.get("stream_options", b"null")) or StreamOptions()


class _Part(msgspec.Struct):
    type: str = "text"


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None


_OPTIONS: Final = msgspec.json.Decoder(StreamOptions | None)
_MESSAGE: Final = msgspec.json.Decoder(_Message)


def _is_read_at_its_end(request: ChatRequest) -> bool:
    """Whether token ids are all that an engine must know of the messages, and usage comes at the end only."""
    try:
        if read_stream_options(request).continuous_usage_stats:
            return False
        contents = [_MESSAGE.decode(message).content for message in request.messages]
    except UNREADABLE:
        return False
    return all(part.type == "text" for content in contents if isinstance(content, list) for part in content)


class _Logprobs(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: JsonObject = {}
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Event(msgspec.Struct, gc=False):
    """Of a streamed chat completion."""

    id: str = ""
    created: int = 0
    model: str = ""
    choices: list[_Choice] | None = None
    prompt_token_ids: list[int] | None = None
    usage: JsonObject | None = None
    error: msgspec.Raw = msgspec.Raw()


class _TextLogprobs(msgspec.Struct, gc=False):
    tokens: list[str]
    token_logprobs: list[float]


class _TextChoice(msgspec.Struct, gc=False):
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: _TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _TextEvent(msgspec.Struct, gc=False):
    """Of a streamed text completion."""

    choices: list[_TextChoice] = []
    usage: dict[str, int | JsonObject | None] | None = None
    error: msgspec.Raw = msgspec.Raw()


_EVENT: Final = msgspec.json.Decoder(_Event)
_TEXT_EVENT: Final = msgspec.json.Decoder(_TextEvent)
_DONE: Final = b"[DONE]"


@dataclass(slots=True)
class JoinedAnswer:
    """An answer, as far as it came."""

    prompt: list[int] = field(default_factory=list[int])
    token_ids: list[int] = field(default_factory=list[int])
    """All that were sampled."""
    is_finished: bool = False
    """It says why it ended, or what went wrong."""
    _is_plain: bool = True
    """It is text and token ids, nothing that a parser made of them."""
    _is_between: bool = False
    """No letter is split between the tokens that came and those that will."""
    _is_continued: bool = False
    _rest: bytes = b""
    _held: list[bytes] = field(default_factory=list[bytes])
    _is_shown: bool = False
    _num_before: int = 0
    """Tokens that were sampled before the present request."""
    _first: _Event = field(default_factory=_Event)
    _last: _Event = field(default_factory=_Event)
    """Last event: why the answer ended and how much it used."""
    _ending: _Choice = field(default_factory=_Choice)
    _message: GrowingMessage = field(default_factory=GrowingMessage)
    _logprobs: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])

    @property
    def can_be_cut(self) -> bool:
        """Whether the present request may be dropped, because another can take its place."""
        if self.is_finished or not self._is_shown:
            return not self.is_finished
        has_all = bool(self.prompt) and len(self.token_ids) == len(self._logprobs)
        return has_all and self._is_plain and self._is_between

    def go_on(self) -> None:
        """Expect the answer to another request: for a completion of the ids, if there are any."""
        self._rest = b""
        self._held.clear()
        self._num_before = len(self.token_ids)
        self._is_continued = self._num_before > 0

    def feed(self, received: bytes) -> bytes:
        """Add bytes of the engine; return whole events of a streamed chat completion.

        Raises: EngineError: it sent something else.
        """
        *lines, self._rest = (self._rest + received).split(b"\n")
        try:
            events = [self._take(line[5:].strip()) for line in lines if line[:5] == b"data:"]
        except UNREADABLE as error:
            raise EngineError(f"engine's stream: expected events of an answer, found {error}; see its log") from error
        self._held += [b"data: %b\n\n" % event for event in events]
        if not self._is_shown:
            return b""
        shown, self._held = b"".join(self._held), []
        return shown

    def whole(self) -> bytes:
        """The answer as if it had been asked for in one piece.

        Raises: EngineError: it did not come to its end.
        """
        if self._last.error or self._ending.finish_reason is None:
            found = bytes(self._last.error).decode() or "the end of its stream"
            raise EngineError(f"engine's stream: expected a whole answer, found {found}; see its log")
        choice = {
            "index": 0,
            "message": self._message.whole(),
            "logprobs": {"content": self._logprobs} if self._logprobs else None,
            "finish_reason": self._ending.finish_reason,
            "stop_reason": self._ending.stop_reason,
            "token_ids": self.token_ids if self.token_ids else None,
        }
        answer = self._head("chat.completion") | {"choices": [choice], "usage": self._last.usage}
        return msgspec.json.encode(answer | {"prompt_token_ids": self.prompt or None})

    def _take(self, event: bytes) -> bytes:
        """Add an event up; give it as one of a chat."""
        if event == _DONE:
            self.is_finished = self._is_shown = True
            return event
        chat = self._as_chat(event) if self._is_continued else event
        try:
            self._add(_EVENT.decode(chat))
        except msgspec.ValidationError:  # the record says which member cannot be read; here, the rest cannot be asked
            self._is_plain, self._is_shown = False, True
        return chat

    def _add(self, event: _Event) -> None:
        if not self._is_shown:
            self._first = event if event.id and not self._held else self._first
        if event.prompt_token_ids is not None:
            self.prompt = event.prompt_token_ids
        if event.error or event.usage:
            self._last = event
        self.is_finished = self.is_finished or bool(event.error)
        for choice in event.choices or ():
            self._grow(choice)
        self._is_shown = self._is_shown or self.is_finished or bool(self.token_ids) or not event.choices

    def _grow(self, choice: _Choice) -> None:
        self._message.add(choice.delta)
        text = choice.delta.get("content")
        self._is_plain = self._is_plain and not {name for name, value in choice.delta.items() if value} - _PLAIN
        self._is_between = bool(text)
        self._is_shown = self._is_shown or bool(text) or not self._is_plain
        self.token_ids += choice.token_ids or ()
        self._logprobs += (choice.logprobs.content if choice.logprobs else None) or ()
        if choice.finish_reason is not None:
            self._ending, self.is_finished = choice, True

    def _as_chat(self, event: bytes) -> bytes:
        found = _TEXT_EVENT.decode(event)
        if found.error:
            return event
        chunk = self._head("chat.completion.chunk") | {"choices": [_chat_choice(choice) for choice in found.choices]}
        return msgspec.json.encode(chunk | ({"usage": self._used(found.usage)} if found.usage else {}))

    def _used(self, usage: dict[str, int | JsonObject | None]) -> JsonObject:
        """What was sampled before counts as sampled, not as prompt."""
        moved = {"prompt_tokens": -self._num_before, "completion_tokens": self._num_before}
        return {name: value + moved.get(name, 0) if isinstance(value, int) else value for name, value in usage.items()}

    def _head(self, kind: str) -> JsonObject:
        first = self._first
        return {"id": first.id, "object": kind, "created": first.created, "model": first.model}


_PLAIN: Final = frozenset({"role", "content"})


def _chat_choice(choice: _TextChoice) -> JsonObject:
    return {
        "index": 0,
        "delta": {"content": choice.text},
        "logprobs": {"content": _entries(choice.logprobs)} if choice.logprobs else None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": choice.token_ids,
    }


def _entries(logprobs: _TextLogprobs) -> list[JsonObject]:
    found = zip(logprobs.tokens, logprobs.token_logprobs, strict=True)
    return [
        {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []} for token, value in found
    ]
