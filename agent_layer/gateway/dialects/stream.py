"""Translated streams: each event of the engine becomes the dialect's own.

Responses, Anthropic messages and Google's API show an answer as a row of blocks, one after the other: what the model
thought, what it wrote, which tools it calls.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import msgspec

from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.chat_stream import Chunk, GrowingAnswer, cut_shown_logprobs, ends
from agent_layer.gateway.dialects.endings import find_failure
from agent_layer.gateway.dialects.refusals import read_engine_error
from agent_layer.schema import UNREADABLE, GrowingCall, GrowingCalls, JsonObject, as_json_objects, mend_surrogates
from agent_layer.translation import assistant_message, tool_call

Kind: TypeAlias = Literal["reasoning", "text", "call"]
Events: TypeAlias = list[JsonObject]
"""Each has its name in ``type``, in dialects that name them."""


@dataclass(slots=True)
class Block:
    """A part of an answer."""

    kind: Kind
    index: int
    """Place in the row."""
    call_id: str = ""
    name: str = ""
    """Name of the tool."""
    texts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Thought or text, or the arguments of the call."""
        return "".join(self.texts)


class BlockEvents(Protocol):
    """Events of a dialect for a streamed block."""

    def begin(self, block: Block) -> Events:
        """It begins, empty."""
        ...

    def grow(self, block: Block, text: str) -> Events:
        """This text was added."""
        ...

    def end(self, block: Block) -> Events:
        """It is whole."""
        ...


def split_blocks(message: JsonObject) -> list[Block]:
    """Split a message into blocks; an empty answer is an empty text."""
    found = [Block(kind, 0, texts=[text]) for kind, text in _spoken(message)]
    for call in as_json_objects(message.get("tool_calls")):
        whole = GrowingCall()
        text = whole.add(call)
        found.append(Block("call", 0, whole.call_id, whole.name, [text]))
    blocks = found or [Block("text", 0)]
    for index, block in enumerate(blocks):
        block.index = index
    return blocks


def join_blocks(blocks: list[Block]) -> JsonObject:
    """Join blocks into the message that a client's history repeats."""
    calls = [tool_call(block.call_id, block.name, block.text) for block in blocks if block.kind == "call"]
    texts = [block.text for block in blocks if block.kind == "text"]
    return assistant_message(texts, [block.text for block in blocks if block.kind == "reasoning"], calls)


@dataclass(slots=True)
class _StreamedCall:
    """A tool call whose block begins once its id and name are known."""

    call: GrowingCall
    block: Block | None = None
    is_ended: bool = False
    waiting: list[str] = field(default_factory=list[str])
    """Arguments that came before."""


@dataclass(slots=True)
class BlockEncoder:
    """Encodes a streamed message as events of its blocks.

    Blocks begin one after the other. A block ends before the next begins, except a tool call whose arguments are not
    whole by then, because engines may send the pieces of parallel calls in turns: it ends as soon as they are, or with
    the message.
    """

    tellers: BlockEvents
    blocks: list[Block] = field(default_factory=list[Block])
    """Those that began."""
    _spoken: Block | None = None
    """Text or thought that is open."""
    _growing: GrowingCalls = field(default_factory=GrowingCalls)
    _calls: list[_StreamedCall] = field(default_factory=list[_StreamedCall])
    """Calls in the order of their beginning."""

    def take(self, delta: JsonObject) -> Iterator[JsonObject]:
        """Yield the events of what a delta adds."""
        for kind, text in _spoken(delta):
            if self._spoken is None or self._spoken.kind != kind:
                yield from self._end_spoken()
                yield from self._end_whole_calls()
                self._spoken = block = self._add_block(Block(kind, 0))
                yield from self.tellers.begin(block)
            yield from self._grow(self._spoken, text)
        for piece in as_json_objects(delta.get("tool_calls")):
            yield from self._take_call(piece)

    def finish(self) -> Iterator[JsonObject]:
        """Yield the last events; an empty answer is an empty text."""
        yield from self._end_spoken()
        yield from self._begin_calls(is_last=True)
        if not self.blocks:
            self._spoken = self._add_block(Block("text", 0))
            yield from self.tellers.begin(self._spoken)
            yield from self._end_spoken()
        for streamed in self._calls:
            yield from self._end_call(streamed)

    def _take_call(self, piece: JsonObject) -> Iterator[JsonObject]:
        call, text = self._growing.add(piece)
        streamed = next((one for one in reversed(self._calls) if one.call is call), None)
        if streamed is None:
            streamed = _StreamedCall(call)
            self._calls.append(streamed)
        if text:
            streamed.waiting.append(text)
        yield from self._end_spoken()
        yield from self._begin_calls()
        yield from self._grow_call(streamed)

    def _begin_calls(self, *, is_last: bool = False) -> Iterator[JsonObject]:
        """Begin the calls that can be shown, in their order.

        Args:
            is_last: no more pieces will come, so that what is not known now never will be.
        """
        for streamed in self._calls:
            if streamed.block is not None:
                continue
            if not is_last and not (streamed.call.call_id and streamed.call.name):
                return
            yield from self._end_whole_calls()
            streamed.block = self._add_block(Block("call", 0, streamed.call.call_id, streamed.call.name))
            yield from self.tellers.begin(streamed.block)
            yield from self._grow_call(streamed)

    def _grow_call(self, streamed: _StreamedCall) -> Iterator[JsonObject]:
        if streamed.block is not None and not streamed.is_ended:
            waiting, streamed.waiting = streamed.waiting, []
            for text in waiting:
                yield from self._grow(streamed.block, text)

    def _end_whole_calls(self) -> Iterator[JsonObject]:
        """End the open calls, in their order, up to the first whose arguments may go on."""
        for streamed in self._calls:
            if not streamed.is_ended and not _is_whole(streamed.call.arguments):
                return
            yield from self._end_call(streamed)

    def _end_call(self, streamed: _StreamedCall) -> Iterator[JsonObject]:
        if streamed.block is not None and not streamed.is_ended:
            streamed.is_ended = True
            yield from self.tellers.end(streamed.block)

    def _end_spoken(self) -> Iterator[JsonObject]:
        if self._spoken is not None:
            yield from self.tellers.end(self._spoken)
        self._spoken = None

    def _grow(self, block: Block, text: str) -> Events:
        block.texts.append(text)
        return self.tellers.grow(block, text)

    def _add_block(self, block: Block) -> Block:
        block.index = len(self.blocks)
        self.blocks.append(block)
        return block


def _is_whole(arguments: str) -> bool:
    """Whether nothing can follow: a JSON object or list that is closed."""
    if not arguments.rstrip().endswith(("}", "]")):
        return False
    try:
        msgspec.json.decode(arguments)
    except (*UNREADABLE, UnicodeEncodeError):
        return False
    return True


def _spoken(message: JsonObject) -> Iterator[tuple[Literal["reasoning", "text"], str]]:
    """Yield what a message, or a delta of it, thinks and says."""
    if thought := message.get("reasoning") or message.get("reasoning_content"):
        yield "reasoning", str(thought)
    for name in ("content", "refusal"):
        if text := message.get(name):
            yield "text", str(text)


class Writer(BlockEvents, Protocol):
    """How a dialect writes a stream."""

    def start(self, num_prompt_tokens: int | None) -> Events:
        """An answer comes."""
        ...

    def finish(self, answer: ChatAnswer, blocks: list[Block]) -> Events:
        """It has come, in these blocks."""
        ...

    def fail(self, code: str, message: str) -> Events:
        """It will not come."""
        ...


class EventForm(Protocol):
    """How events become bytes."""

    def write(self, events: Iterable[JsonObject]) -> bytes:
        """Return events as bytes."""
        ...

    def end(self) -> bytes:
        """Return what follows the last event."""
        ...


class NamedEvents:
    """Server-sent events, each under its name."""

    def write(self, events: Iterable[JsonObject]) -> bytes:
        """Return events as bytes."""
        return b"".join(
            [b"event: %b\ndata: %b\n\n" % (str(one["type"]).encode(), _ENCODER.encode(one)) for one in events]
        )

    def end(self) -> bytes:
        """Nothing follows."""
        return b""


@dataclass(frozen=True, slots=True)
class EventLines:
    """Events as lines of JSON, each with the same members added."""

    added: JsonObject

    def write(self, events: Iterable[JsonObject]) -> bytes:
        """Return events as bytes."""
        return b"".join([_ENCODER.encode({**one, **self.added}) + b"\n" for one in events])

    def end(self) -> bytes:
        """Nothing follows."""
        return b""


@dataclass(slots=True)
class TranslatedStream:
    """An answer that is still coming."""

    writer: Writer
    num_choices: int = 1
    shows_logprobs: bool = False
    form: EventForm = field(default_factory=NamedEvents)
    is_done: bool = False
    error: str | None = None
    _growing: GrowingAnswer = field(init=False)
    _walk: BlockEncoder = field(init=False)
    _rest: bytes = b""
    _is_started: bool = False
    _shown: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._growing, self._walk = GrowingAnswer(self.num_choices), BlockEncoder(self.writer)

    def feed(self, received: bytes) -> bytes:
        """Add bytes of the engine; return the events that they make."""
        lines, newline, self._rest = (self._rest + received).rpartition(b"\n")
        if not newline or self.error is not None or self.is_done:
            return b""  # nothing follows the end, though its last line break may come by itself
        lines, events = mend_surrogates(lines), b""
        try:
            for chunk in self._growing.take_all([lines]):
                events += self.form.write(self._encode(chunk))
            if self.shows_logprobs:
                self._shown += cut_shown_logprobs([lines], self._growing.reader)
        except UNREADABLE as error:
            return events + self.fail(f"the engine sent an event that cannot be read: {error}")
        if self._growing.error is not None:
            return events + self.fail(self._growing.error)
        self.is_done = ends(lines)
        return events + self._finish() if self.is_done else events

    def fail(self, message: str) -> bytes:
        """Record that the engine broke off; return the client's last events."""
        self.error = message
        code, sentence = read_engine_error(
            b'{"error":%b}' % message.encode() if message[:1] in ("{", '"') else message.encode()
        )
        return self.form.write([*self._start(), *self.writer.fail(code, sentence)]) + self.form.end()

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        return self._growing.answer(version)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for names why it ended."""
        return self._growing.is_complete

    def _encode(self, chunk: Chunk) -> Events:
        events = self._start()
        for choice in chunk.choices:
            if choice.index == 0 and choice.delta:
                events += self._walk.take(choice.delta)
        return events

    def _start(self) -> Events:
        if self._is_started:
            return []
        self._is_started = True
        return self.writer.start(None if self._growing.prompt is None else len(self._growing.prompt))

    def _finish(self) -> bytes:
        answer = msgspec.structs.replace(self._growing.answer(0), shown_logprobs=self._shown)
        if (error := find_failure(answer)) is not None:
            return self.fail(error)
        last = [*self._start(), *self._walk.finish()]
        return self.form.write([*last, *self.writer.finish(answer, self._walk.blocks)]) + self.form.end()


_ENCODER = msgspec.json.Encoder()
