"""This file holds streamed chat completions: bytes are passed on as they come, and add up to one answer."""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.gateway.dialects.chat import ChatAnswer, ChatRequest
from agent_layer.gateway.dialects.growing import GrowingAnswer, read_chunks
from agent_layer.gateway.dialects.refusals import openai_error

__all__ = ["ChatStream", "ends"]

_READ_BYTES = 64 << 10
"""Events are decoded so many bytes at a time."""

# Members that were added for the record. Inside a JSON string their quotes would be escaped, so no text matches.
_IDS: Final = re.compile(rb'"token_ids": ?\[[\d, ]*+\]')
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids": ?\[[\d, ]*+\]')
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN = rb'[^"{}\[\]]++|' + _TEXT
_ENTRY = rb"\{(?:" + _PLAIN + rb"|\[[^\"\[\]]*+\])*+\}"
_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{(?:' + _PLAIN + rb"|\[(?:" + _ENTRY + rb"|[, ])*+\])*+\}")


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
        return self._visible(lines) + newline

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

    def _visible(self, lines: bytes) -> bytes:
        if not self.request.wants_token_ids:
            lines = _IDS.sub(b'"token_ids":null', lines)
            if self._growing.prompt is None:
                lines = _PROMPT_IDS.sub(b'"prompt_token_ids":null', lines)
        return lines if self.request.wants_logprobs else _LOGPROBS.sub(b'"logprobs":null', lines)

    def _read(self) -> None:
        unread, self._unread, self._num_unread = self._unread, [], 0
        try:
            for chunk in read_chunks(unread):
                self._growing.take(chunk)
        except msgspec.DecodeError as error:
            self.error = f"the engine sent an event that cannot be read: {error}"
        else:
            self.error = self._growing.error or self.error


def ends(lines: bytes) -> bool:
    """Whether the last event of these lines is the closing one."""
    last = lines.rstrip().rpartition(b"\n")[2]
    return last.startswith(b"data:") and last[5:].strip() == b"[DONE]"
