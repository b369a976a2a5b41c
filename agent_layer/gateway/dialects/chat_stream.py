"""This file holds streamed chat completions: bytes are passed on as they come, and add up to one answer."""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.gateway.dialects.chat import ChatAnswer, ChatRequest, LogprobList, action_of
from agent_layer.gateway.dialects.deltas import GrowingMessage
from agent_layer.schema.record import JsonObject, Logprobs, TokenIds
from agent_layer.schema.step import Action

__all__ = ["ChatStream"]

_READ_BYTES = 64 << 10
"""Events are decoded so many bytes at a time: together they cost half of what they cost one by one."""


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: JsonObject | None = None
    token_ids: list[int] | None = None
    logprobs: LogprobList | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    prompt_token_ids: list[int] | None = None
    error: JsonObject | str | None = None


_CHUNKS: Final = msgspec.json.Decoder(list[_Chunk])

# Members that were added for the record. Inside a JSON string their quotes would be escaped, so no text matches.
_IDS: Final = re.compile(rb'"token_ids": ?\[[\d, ]*+\]')
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids": ?\[[\d, ]*+\]')
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN = rb'[^"{}\[\]]++|' + _TEXT
_ENTRY = rb"\{(?:" + _PLAIN + rb"|\[[^\"\[\]]*+\])*+\}"
_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{(?:' + _PLAIN + rb"|\[(?:" + _ENTRY + rb"|[, ])*+\])*+\}")


@dataclass(slots=True)
class _Growing:
    """One choice, so far."""

    message: GrowingMessage = field(default_factory=GrowingMessage)
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None

    def take(self, choice: _Choice) -> None:
        if choice.delta:
            self.message.add(choice.delta)
        if choice.token_ids is not None:
            self.token_ids = self.token_ids or TokenIds()
            self.token_ids.extend(choice.token_ids)
        if choice.logprobs is not None:
            self.logprobs = self.logprobs or Logprobs()
            self.logprobs.extend(choice.logprobs.values)
        self.finish_reason = choice.finish_reason or self.finish_reason

    def action(self, version: int) -> Action:
        return action_of(self.message.whole(), self.token_ids, self.logprobs, self.finish_reason, version)


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
    _rest: bytes = b""
    _unread: list[bytes] = field(default_factory=list[bytes])
    _num_unread: int = 0
    _prompt: TokenIds | None = None
    _choices: dict[int, _Growing] = field(default_factory=dict[int, _Growing])

    def feed(self, received: bytes) -> bytes:
        """Take bytes of the engine; give those that the client is to see now. Half a line waits for its other half."""
        lines, newline, self._rest = (self._rest + received).rpartition(b"\n")
        if not newline:
            return b""
        self._unread.append(lines)
        self._num_unread += len(lines)
        self.is_done = self.is_done or _ends(lines)
        if self._num_unread > _READ_BYTES:
            self._read()
        return self._visible(lines) + newline

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        self._read()
        actions = [self._choices[index].action(version) for index in sorted(self._choices)]
        return ChatAnswer(body=b"", prompt_token_ids=self._prompt, actions=actions)

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for has said why it ended, as far as was read."""
        is_begun = len(self._choices) >= max(1, self.num_choices)
        return is_begun and all(choice.finish_reason is not None for choice in self._choices.values())

    def _visible(self, lines: bytes) -> bytes:
        if not self.request.wants_token_ids:
            lines = _IDS.sub(b'"token_ids":null', lines)
            if self._prompt is None:
                lines = _PROMPT_IDS.sub(b'"prompt_token_ids":null', lines)
        return lines if self.request.wants_logprobs else _LOGPROBS.sub(b'"logprobs":null', lines)

    def _read(self) -> None:
        events = [line[5:] for lines in self._unread for line in lines.split(b"\n") if line[:7] in _EVENT_STARTS]
        self._unread, self._num_unread = [], 0
        try:
            chunks = _CHUNKS.decode(b"[" + b",".join(events) + b"]")
        except msgspec.DecodeError as error:
            self.error = f"the engine sent an event that cannot be read: {error}"
            return
        for chunk in chunks:
            self._take(chunk)

    def _take(self, chunk: _Chunk) -> None:
        if chunk.error is not None:
            self.error = msgspec.json.encode(chunk.error).decode()
        if chunk.prompt_token_ids is not None and self._prompt is None:
            self._prompt = TokenIds(chunk.prompt_token_ids)
        for choice in chunk.choices:
            if (growing := self._choices.get(choice.index)) is None:
                growing = self._choices[choice.index] = _Growing()
            growing.take(choice)


_EVENT_STARTS = (b"data: {", b'data:{"')


def _ends(lines: bytes) -> bool:
    """Whether the last event is the closing one."""
    last = lines.rstrip().rpartition(b"\n")[2]
    return last.startswith(b"data:") and last[5:].strip() == b"[DONE]"
