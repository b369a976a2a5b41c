"""This file holds streamed chat completions: bytes are passed on as they come, and add up to one answer."""

from dataclasses import dataclass, field

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.growing import GrowingAnswer, read_chunks
from agent_layer.gateway.dialects.hiding import hide_in_events
from agent_layer.gateway.dialects.refusals import openai_error
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["ChatStream", "ends"]

_READ_BYTES = 64 << 10
"""Events are decoded so many bytes at a time."""


@dataclass(slots=True)
class ChatStream:
    """An answer that is still coming."""

    request: ChatRequest
    num_choices: int = 1
    """So many answers were asked for."""
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
        """Take bytes of the engine; give those that the client is to see now. Half a line waits for its other half."""
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
        """Note that the engine broke off; give what tells the client."""
        self.error = message
        return b"data: %b\n\n" % msgspec.json.encode(openai_error(502, "engine_failed", message))

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        self._read()
        return self._growing.answer(version)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for has said why it ended, as far as was read."""
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
