"""Streamed chat completions: bytes pass through as they come, and add up to the one answer that is recorded.

Texts of a message's chunks are joined, tool calls are joined by index.
"""

from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import (
    ChatAnswer,
    EngineUsage,
    LogprobList,
    build_action,
    hide_in_events,
    read_shown,
)
from agent_layer.gateway.dialects.refusals import openai_error
from agent_layer.schema import UNREADABLE, Action, JsonObject, Logprobs, TokenIds, as_json_object, as_json_objects


@dataclass(slots=True)
class GrowingMessage:
    """A message, as far as it was streamed."""

    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _others: JsonObject = field(default_factory=dict[str, object])
    _calls: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def add(self, delta: JsonObject) -> None:
        """Take a chunk."""
        for name, value in delta.items():
            if name == "tool_calls":
                self._add_calls(as_json_objects(value))
            elif isinstance(value, str) and name != "role":
                self._texts.setdefault(name, []).append(value)
            elif value is not None:
                self._others[name] = value

    def whole(self) -> JsonObject:
        """The message that all chunks make."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        message: JsonObject = {"role": "assistant", "content": None, **self._others, **texts}
        return {**message, "tool_calls": list(self._calls.values())} if self._calls else message

    def _add_calls(self, deltas: list[JsonObject]) -> None:
        for delta in deltas:
            call = self._calls.setdefault(str(delta.get("index", len(self._calls))), {"function": {}})
            function = cast("dict[str, str]", call["function"])
            for name, value in as_json_object(delta.get("function")).items():
                text = "" if value is None else str(value)
                function[name] = function.get(name, "") + text if name == "arguments" else text
            known = {name: value for name, value in delta.items() if value is not None}
            call |= {name: value for name, value in known.items() if name not in ("index", "function")}


class ChunkChoice(msgspec.Struct, gc=False):
    """What a chunk adds to one choice."""

    index: int = 0
    delta: JsonObject | None = None
    token_ids: list[int] | None = None
    logprobs: LogprobList | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of the engine."""

    choices: list[ChunkChoice] = []
    prompt_token_ids: list[int] | None = None
    usage: EngineUsage | None = None
    error: JsonObject | str | None = None


_CHUNKS: Final = msgspec.json.Decoder(list[Chunk])
_EVENT_STARTS: Final = (b"data: {", b'data:{"')


def read_chunks(received: list[bytes]) -> list[Chunk]:
    """Read all events of these lines at once; together they cost half of what they cost one by one.

    Raises: UNREADABLE: one of them is no chunk.
    """
    return _CHUNKS.decode(_events_of(received))


def read_shown_of(received: list[bytes]) -> list[msgspec.Raw]:
    """Cut out the log-probabilities of the first choice, as the engine wrote them.

    Raises: UNREADABLE: one of the lines is no chunk.
    """
    choices = [choice for chunk in _SHOWING.decode(_events_of(received)) for choice in chunk.choices]
    return [one for choice in choices if choice.index == 0 for one in read_shown(choice.logprobs)]


class _ShowingChoice(msgspec.Struct, gc=False):
    index: int = 0
    logprobs: msgspec.Raw = msgspec.Raw()


class _Showing(msgspec.Struct, gc=False):
    choices: list[_ShowingChoice] = []


_SHOWING: Final = msgspec.json.Decoder(list[_Showing])


def _events_of(received: list[bytes]) -> bytes:
    """Return all events of these lines as one JSON list."""
    events = [line[5:] for lines in received for line in lines.split(b"\n") if line[:7] in _EVENT_STARTS]
    return b"[" + b",".join(events) + b"]"


@dataclass(slots=True)
class _GrowingChoice:
    """One choice, so far."""

    message: GrowingMessage = field(default_factory=GrowingMessage)
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def take(self, choice: ChunkChoice) -> None:
        if choice.delta:
            self.message.add(choice.delta)
        if choice.token_ids is not None:
            self.token_ids = self.token_ids or TokenIds()
            self.token_ids.extend(choice.token_ids)
        if choice.logprobs is not None:
            self.logprobs = self.logprobs or Logprobs()
            self.logprobs.extend(choice.logprobs.values)
        self.finish_reason = choice.finish_reason or self.finish_reason
        self.stop_reason = self.stop_reason if choice.stop_reason is None else choice.stop_reason

    def action(self, version: int) -> Action:
        return build_action(self.message.whole(), self.token_ids, self.logprobs, self.finish_reason, version)


@dataclass(slots=True)
class GrowingAnswer:
    """An answer, as far as it was streamed."""

    num_choices: int = 1
    """Answers that the client asked for."""
    error: str | None = None
    """What the engine says went wrong in the middle."""
    prompt: TokenIds | None = None
    usage: EngineUsage | None = None
    _choices: dict[int, _GrowingChoice] = field(default_factory=dict[int, _GrowingChoice])

    def take(self, chunk: Chunk) -> None:
        """Take the next event."""
        if chunk.error is not None:
            self.error = msgspec.json.encode(chunk.error).decode()
        if chunk.prompt_token_ids is not None and self.prompt is None:
            self.prompt = TokenIds(chunk.prompt_token_ids)
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            if (growing := self._choices.get(choice.index)) is None:
                growing = self._choices[choice.index] = _GrowingChoice()
            growing.take(choice)

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return ChatAnswer(
            body=b"",
            prompt_token_ids=self.prompt,
            actions=[choice.action(version) for choice in choices],
            usage=self.usage,
            stop_reason=choices[0].stop_reason if choices else None,
        )

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for names why it ended."""
        is_begun = len(self._choices) >= max(1, self.num_choices)
        return is_begun and all(choice.finish_reason is not None for choice in self._choices.values())


_READ_BYTES = 64 << 10
"""Events are decoded in batches of this size."""


@dataclass(slots=True)
class ChatStream:
    """An answer that is still coming."""

    request: ChatRequest
    num_choices: int = 1
    """Answers that the client asked for."""
    is_done: bool = False
    """The closing event has been seen."""
    error: str | None = None
    """What went wrong in the middle."""
    _growing: GrowingAnswer = field(init=False)
    _rest: bytes = b""
    _unread: list[bytes] = field(default_factory=list[bytes])
    _num_unread: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._growing = GrowingAnswer(self.num_choices)

    def feed(self, received: bytes) -> bytes:
        """Add bytes of the engine; return those that the client may see now. Half a line waits for its other half."""
        lines, newline, self._rest = (self._rest + received).rpartition(b"\n")
        if not newline:
            return b""
        self._unread.append(lines)
        self._num_unread += len(lines)
        self.is_done = self.is_done or ends(lines)
        if self._num_unread > _READ_BYTES:
            self._read()
        asked = self.request
        return hide_in_events(lines, ids=not asked.wants_token_ids, logprobs=not asked.wants_logprobs) + newline

    def fail(self, message: str) -> bytes:
        """Record that the engine broke off; return the client's last event."""
        self.error = message
        return b"data: %b\n\n" % msgspec.json.encode(openai_error(502, "engine_failed", message))

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        self._read()
        return self._growing.answer(version)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for names why it ended, as far as was read."""
        return self._growing.is_complete

    def _read(self) -> None:
        unread, self._unread, self._num_unread = self._unread, [], 0
        try:
            for chunk in read_chunks(unread):
                self._growing.take(chunk)
        except UNREADABLE as error:
            self.error = f"the engine sent an event that cannot be read: {error}"
        else:
            self.error = self._growing.error or self.error


def ends(lines: bytes) -> bool:
    """Whether the last event of these lines is the closing one."""
    last = lines.rstrip().rpartition(b"\n")[2]
    return last.startswith(b"data:") and last[5:].strip() == b"[DONE]"
