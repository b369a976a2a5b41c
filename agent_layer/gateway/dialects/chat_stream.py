"""Streamed chat completions: bytes pass through as they come, and add up to the one answer that is recorded.

The client has the bytes already, so whatever can be read of them is recorded, and the rest is named in a finding. Only
events with several pieces of one tool call are written again: vLLM sends name and arguments so where one token holds
both, and OpenAI's clients take the pieces of their first such event for calls of their own.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import (
    ChatAnswer,
    EngineUsage,
    LogprobList,
    MemberReader,
    TokenId,
    build_action,
    check_agreement,
    hide_in_events,
)
from agent_layer.gateway.dialects.refusals import openai_error
from agent_layer.schema import (
    DISAGREES,
    UNREADABLE,
    Action,
    GrowingCalls,
    GrowingMessage,
    JsonObject,
    Logprobs,
    TokenIds,
    as_json_objects,
    mend_surrogates,
)


class ChunkChoice(msgspec.Struct, gc=False):
    """What a chunk adds to one choice."""

    index: int = 0
    delta: JsonObject | None = None
    token_ids: list[TokenId] | None = None
    logprobs: LogprobList | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of the engine."""

    choices: list[ChunkChoice] = []
    prompt_token_ids: list[TokenId] | None = None
    usage: EngineUsage | None = None
    error: JsonObject | str | None = None


class _RawChoice(msgspec.Struct, gc=False):
    index: msgspec.Raw = msgspec.Raw()
    delta: msgspec.Raw = msgspec.Raw()
    token_ids: msgspec.Raw = msgspec.Raw()
    logprobs: msgspec.Raw = msgspec.Raw()
    finish_reason: msgspec.Raw = msgspec.Raw()
    stop_reason: msgspec.Raw = msgspec.Raw()


class _RawChunk(msgspec.Struct, gc=False):
    """A chunk, some of whose members are not what they should be."""

    choices: msgspec.Raw = msgspec.Raw()
    prompt_token_ids: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_Members: TypeAlias = Mapping[str, "msgspec.json.Decoder[object]"]
_CHUNKS: Final = msgspec.json.Decoder(list[Chunk])
_RAW_CHUNK: Final = msgspec.json.Decoder(_RawChunk)
_CHOICES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_CHOICE: Final = msgspec.json.Decoder(_RawChoice)
_INDEX: Final = msgspec.json.Decoder(int)
_EVENT_STARTS: Final = (b"data: {", b'data:{"')


def _decoders(kind: type[msgspec.Struct]) -> _Members:
    return {one.name: msgspec.json.Decoder(one.type) for one in msgspec.structs.fields(kind) if one.name != "choices"}


_CHUNK_MEMBERS: Final = _decoders(Chunk)
_CHOICE_MEMBERS: Final = _decoders(ChunkChoice)


def read_chunks(received: list[bytes], reader: MemberReader) -> Iterator[Chunk]:
    """Read events: all at once, which costs half of what they cost one by one; or what can be read of each.

    Raises: UNREADABLE: one of them is no JSON object; those before it were yielded.
    """
    events = _split_events(received)
    try:
        chunks = _CHUNKS.decode(b"[" + b",".join(events) + b"]")
    except UNREADABLE:
        for event in events:
            yield _read_chunk(event, reader)
    else:
        yield from chunks


def _read_chunk(event: bytes, reader: MemberReader) -> Chunk:
    raw = _RAW_CHUNK.decode(event.decode())  # what is no text is no event
    choices = [ChunkChoice(**_read_members(one, _CHOICE_MEMBERS, reader)) for one in _read_choices(raw, reader)]
    return Chunk(choices=choices, **_read_members(raw, _CHUNK_MEMBERS, reader))


def _read_choices(chunk: _RawChunk, reader: MemberReader) -> Iterator[_RawChoice]:
    for choice in reader.read("choices", _CHOICES, chunk.choices) or ():
        if (raw := reader.read("choice", _RAW_CHOICE, choice)) is not None:
            yield raw


def _read_members(raw: msgspec.Struct, members: _Members, reader: MemberReader) -> dict[str, Any]:
    found = {name: reader.read(name, decoder, getattr(raw, name)) for name, decoder in members.items()}
    return {name: value for name, value in found.items() if value is not None}


def cut_shown_logprobs(received: list[bytes], reader: MemberReader) -> list[msgspec.Raw]:
    """Cut out the log-probabilities of the first choice, as the engine wrote them.

    Raises: UNREADABLE: one of the lines is no JSON object.
    """
    chunks = [_RAW_CHUNK.decode(event) for event in _split_events(received)]
    choices = [choice for chunk in chunks for choice in _read_choices(chunk, reader)]
    first = [choice for choice in choices if not reader.read("index", _INDEX, choice.index)]
    return [one for choice in first for one in reader.read_shown(choice.logprobs)]


def _split_events(received: list[bytes]) -> list[bytes]:
    return [line[5:] for lines in received for line in lines.split(b"\n") if line[:7] in _EVENT_STARTS]


@dataclass(slots=True)
class _GrowingChoice:
    """One choice, so far."""

    message: GrowingMessage = field(default_factory=GrowingMessage)
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def take(self, choice: ChunkChoice, reader: MemberReader) -> None:
        if choice.delta:
            self.message.add(choice.delta)
        if choice.token_ids is not None and (ids := reader.as_ids("token_ids", choice.token_ids)) is not None:
            self.token_ids = self.token_ids or TokenIds()
            self.token_ids.extend(ids)
        if choice.logprobs is not None:
            self.logprobs = self.logprobs or Logprobs()
            self.logprobs.extend(choice.logprobs.values)
        self.finish_reason = choice.finish_reason or self.finish_reason
        self.stop_reason = self.stop_reason if choice.stop_reason is None else choice.stop_reason

    def action(self, version: int, unread: Collection[str]) -> Action:
        """What could not be read of a part makes the whole unknown: the rest would stand at other places."""
        ids = self.token_ids if _HOLD_IDS.isdisjoint(unread) else None
        logprobs = self.logprobs if _HOLD_LOGPROBS.isdisjoint(unread) else None
        return build_action(self.message.whole(), ids, logprobs, self.finish_reason, version)


_HOLD_IDS: Final = frozenset({"token_ids", "index", "choice"})
_HOLD_LOGPROBS: Final = frozenset({"logprobs", "index", "choice"})


@dataclass(slots=True)
class GrowingAnswer:
    """An answer, as far as it was streamed."""

    num_choices: int = 1
    """Answers that the engine was asked for."""
    error: str | None = None
    """What the engine says went wrong in the middle."""
    prompt: TokenIds | None = None
    usage: EngineUsage | None = None
    reader: MemberReader = field(default_factory=MemberReader)
    _has_two_prompts: bool = False
    _choices: dict[int, _GrowingChoice] = field(default_factory=dict[int, _GrowingChoice])

    def take_all(self, received: list[bytes]) -> Iterator[Chunk]:
        """Take the events of these lines; yield each.

        Raises: UNREADABLE: one of them is no JSON object; those before it are taken.
        """
        for chunk in read_chunks(received, self.reader):
            self._take(chunk)
            yield chunk

    def _take(self, chunk: Chunk) -> None:
        if chunk.error is not None:
            self.error = msgspec.json.encode(chunk.error).decode()
        if chunk.prompt_token_ids is not None and (
            (ids := self.reader.as_ids("prompt_token_ids", chunk.prompt_token_ids)) is not None
        ):
            self._has_two_prompts |= self.prompt not in (None, ids)
            self.prompt = self.prompt or ids
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            if (growing := self._choices.get(choice.index)) is None:
                growing = self._choices[choice.index] = _GrowingChoice()
            growing.take(choice, self.reader)

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        indices, unread = sorted(self._choices), self.reader.unread
        choices = [self._choices[index] for index in indices]
        actions = [choice.action(version, unread) for choice in choices]
        doubts = check_agreement(self.prompt, actions, self.usage, indices, self.num_choices)
        prompts = [f"{DISAGREES}:prompt_token_ids"] if self._has_two_prompts else []
        return ChatAnswer(
            body=b"",
            prompt_token_ids=self.prompt,
            actions=actions,
            usage=self.usage,
            stop_reason=choices[0].stop_reason if choices else None,
            findings=[*self.reader.findings, *doubts, *prompts],
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
        lines = mend_surrogates(lines)  # the client's and the record's alike
        self._unread.append(lines)
        self._num_unread += len(lines)
        self.is_done = self.is_done or ends(lines)
        if self._num_unread > _READ_BYTES:
            self._read()
        request = self.request
        if lines.count(_PIECE) > 1:
            lines = b"\n".join(map(_join_pieces, lines.split(b"\n")))
        return hide_in_events(lines, ids=not request.wants_token_ids, logprobs=not request.wants_logprobs) + newline

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
            for _ in self._growing.take_all(unread):
                pass
        except UNREADABLE as error:
            self.error = f"the engine sent an event that cannot be read: {error}"
        else:
            self.error = self._growing.error or self.error


_PIECE: Final = b'"function"'
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CHOICE_LIST: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def _join_pieces(line: bytes) -> bytes:
    """Return an event in which each tool call has one piece at most; one that cannot be read, or has none, stays."""
    if line[:7] not in _EVENT_STARTS or line.count(_PIECE) < 2:
        return line
    try:
        event = _MEMBERS.decode(line[5:])
        choices = _CHOICE_LIST.decode(event["choices"])
        deltas = [_MEMBERS.decode(choice["delta"]) for choice in choices]
        joined = [_join_calls(as_json_objects(msgspec.json.decode(one.get("tool_calls", b"[]")))) for one in deltas]
    except (*UNREADABLE, KeyError):
        return line
    if not any(joined):
        return line
    for choice, delta, calls in zip(choices, deltas, joined, strict=True):
        if calls:
            choice["delta"] = msgspec.Raw(msgspec.json.encode(delta | {"tool_calls": calls}))
    return b"data: " + msgspec.json.encode(event | {"choices": choices})


def _join_calls(pieces: list[JsonObject]) -> list[JsonObject]:
    """Return the pieces of one delta, one for each call; empty: they are so already."""
    growing, places = GrowingCalls(), dict[int, JsonObject]()
    for piece in pieces:
        call, _ = growing.add(piece)
        places.setdefault(id(call), {name: piece[name] for name in ("index",) if name in piece})
    calls = growing.calls
    return [places[id(call)] | call.whole() for call in calls] if len(calls) < len(pieces) else []


def ends(lines: bytes) -> bool:
    """Whether the last event of these lines is the closing one."""
    if not (text := lines.rstrip()).endswith(b"[DONE]"):
        return False
    last = text.rpartition(b"\n")[2]
    return last.startswith(b"data:") and last[5:].strip() == b"[DONE]"
