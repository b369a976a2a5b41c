"""Translated streams: each event of the engine becomes the dialect's own.

Responses and Anthropic messages show an answer as a row of blocks, one after the other: what the model thought, what it
wrote, which tools it calls.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import msgspec

from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.chat_stream import Chunk, GrowingAnswer, ends, read_chunks, read_shown_of
from agent_layer.gateway.dialects.refusals import read_engine_error
from agent_layer.gateway.dialects.turns import assistant_message, tool_call
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects

Kind: TypeAlias = Literal["reasoning", "text", "call"]
Events: TypeAlias = list[JsonObject]
"""Each has its name in ``type``."""


@dataclass(slots=True)
class Block:
    """A part of an answer."""

    kind: Kind
    index: int
    """Place in the row."""
    call_id: str = ""
    name: str = ""
    """Of the tool."""
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
    found = [Block(kind, 0, call_id, name, [text]) for kind, call_id, name, text, _ in _additions(message)]
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
class BlockEncoder:
    """Encodes a streamed message as events of its blocks, one block after the other."""

    tellers: BlockEvents
    _open: Block | None = None
    _number: object = None
    """Of the tool call that is open."""
    _num_blocks: int = 0

    def take(self, delta: JsonObject) -> Iterator[JsonObject]:
        """Yield the events of what a delta adds."""
        for kind, call_id, name, text, number in _additions(delta):
            block = self._open
            if block is None or block.kind != kind or (kind == "call" and number != self._number):
                yield from self.close()
                block = Block(kind, self._num_blocks, call_id, name)
                yield from self._begin(block, number)
            if text:
                block.texts.append(text)
                yield from self.tellers.grow(block, text)

    def finish(self) -> Iterator[JsonObject]:
        """Yield the last events; an empty answer is an empty text."""
        if not self._num_blocks:
            yield from self._begin(Block("text", 0), None)
        yield from self.close()

    def close(self) -> Iterator[JsonObject]:
        """Yield the events that end the open block."""
        if self._open is not None:
            yield from self.tellers.end(self._open)
        self._open = None

    def _begin(self, block: Block, number: object) -> Events:
        self._open, self._number = block, number
        self._num_blocks += 1
        return self.tellers.begin(block)


_Addition: TypeAlias = tuple[Kind, str, str, str, object]
"""(kind, call id, tool, text, number of the call)."""


def _additions(message: JsonObject) -> Iterator[_Addition]:
    if thought := message.get("reasoning") or message.get("reasoning_content"):
        yield "reasoning", "", "", str(thought), None
    for name in ("content", "refusal"):
        if said := message.get(name):
            yield "text", "", "", str(said), None
    for place, call in enumerate(as_json_objects(message.get("tool_calls"))):
        function = as_json_object(call.get("function"))
        name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
        yield "call", str(call.get("id") or ""), name, arguments, call.get("index", place)


class Writer(BlockEvents, Protocol):
    """How a dialect writes a stream."""

    def start(self, num_prompt_tokens: int | None) -> Events:
        """An answer comes."""
        ...

    def finish(self, answer: ChatAnswer) -> Events:
        """It has come."""
        ...

    def fail(self, code: str, message: str) -> Events:
        """It will not come."""
        ...


@dataclass(slots=True)
class TranslatedStream:
    """An answer that is still coming."""

    writer: Writer
    num_choices: int = 1
    shows_logprobs: bool = False
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
        if not newline or self.error is not None:
            return b""
        try:
            chunks = read_chunks([lines])
            if self.shows_logprobs:
                self._shown += read_shown_of([lines])
            told = b"".join([_written(self._take(chunk)) for chunk in chunks])
        except UNREADABLE as error:
            return self.fail(f"the engine sent an event that cannot be read: {error}")
        if self._growing.error is not None:
            return told + self.fail(self._growing.error)
        self.is_done = self.is_done or ends(lines)
        return told + self._finish() if self.is_done else told

    def fail(self, message: str) -> bytes:
        """Record that the engine broke off; return the client's last events."""
        self.error = message
        code, sentence = read_engine_error(
            b'{"error":%b}' % message.encode() if message[:1] in ("{", '"') else message.encode()
        )
        return _written([*self._start(), *self.writer.fail(code, sentence)])

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        return self._growing.answer(version)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for names why it ended."""
        return self._growing.is_complete

    def _take(self, chunk: Chunk) -> Events:
        self._growing.take(chunk)
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
        return _written([*self._start(), *self._walk.finish(), *self.writer.finish(answer)])


def _written(events: Iterable[JsonObject]) -> bytes:
    return b"".join([b"event: %b\ndata: %b\n\n" % (str(one["type"]).encode(), _ENCODER.encode(one)) for one in events])


_ENCODER = msgspec.json.Encoder()
