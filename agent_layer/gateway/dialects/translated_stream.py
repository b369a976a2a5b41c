"""This file holds streamed answers that are translated: each of the engine's events becomes the dialect's own."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from agent_layer.gateway.dialects.blocks import BlockWalk, Events, Tellers
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.chat_stream import ends
from agent_layer.gateway.dialects.growing import Chunk, GrowingAnswer, read_chunks, read_shown_of
from agent_layer.gateway.dialects.refusals import sentence_of
from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["TranslatedStream", "Writer"]


class Writer(Tellers, Protocol):
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
    _walk: BlockWalk = field(init=False)
    _rest: bytes = b""
    _is_started: bool = False
    _shown: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._growing, self._walk = GrowingAnswer(self.num_choices), BlockWalk(self.writer)

    def feed(self, received: bytes) -> bytes:
        """Take bytes of the engine; give the events that they make."""
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
        """Note that the engine broke off; give what tells the client."""
        self.error = message
        code, sentence = sentence_of(
            b'{"error":%b}' % message.encode() if message[:1] in ("{", '"') else message.encode()
        )
        return _written([*self._start(), *self.writer.fail(code, sentence)])

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        return self._growing.answer(version)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for has said why it ended."""
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
