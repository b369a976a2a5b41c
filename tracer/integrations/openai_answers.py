"""This file holds how the openai client's results are recorded, whichever way the caller asked for them."""

from collections.abc import AsyncIterator, Iterator
from typing import Protocol, cast

from openai import APIResponse, AsyncAPIResponse, AsyncStream, BaseModel, Stream

from tracer.calls import Answer, Call
from tracer.integrations.chat import read_answer, read_stream

__all__ = ["record_answer"]

_DONE = "[DONE]"
_EVENTS = "_iter_events"
"""Method of a stream that gives its events undecoded. Not public, but in every 1.x and 2.x of the client."""


class _Event(Protocol):
    """One server-sent event."""

    @property
    def data(self) -> str: ...


class _RawResponse(Protocol):
    """What ``with_raw_response`` gives."""

    @property
    def content(self) -> bytes: ...

    def parse(self) -> object: ...


def record_answer(call: Call, result: object) -> None:
    """Record the end of a call: now, or while its stream is read, before the last chunk is handed on."""
    if isinstance(result, Stream):
        stream = cast("Stream[object]", result)
        setattr(stream, _EVENTS, _always(_watch(_StreamRecord(call), getattr(stream, _EVENTS)())))
    elif isinstance(result, AsyncStream):
        async_stream = cast("AsyncStream[object]", result)
        setattr(async_stream, _EVENTS, _always(_watch_async(_StreamRecord(call), getattr(async_stream, _EVENTS)())))
    elif isinstance(result, BaseModel):
        call.finish("hook", read_answer(result.model_dump_json(exclude_unset=True).encode()))
    elif isinstance(result, APIResponse | AsyncAPIResponse):  # the caller reads it in a way of its own
        call.finish("hook", Answer(findings=["answer_not_read"]))
    else:
        _record_raw(call, cast("_RawResponse", result))


def _record_raw(call: Call, response: _RawResponse) -> None:
    parsed = response.parse()  # the response keeps it, and gives the same stream to the caller
    if isinstance(parsed, Stream | AsyncStream):
        record_answer(call, cast("object", parsed))
    else:
        call.finish("hook", read_answer(response.content))


class _StreamRecord:
    """A stream that is being read. One that is read no further when its rollout ends was given up."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._chunks: list[str] = []
        call.scope.rollout.unfinished[call.call_id] = self.end

    def see(self, text: str) -> None:
        if text.startswith(_DONE):
            self.end(is_whole=True)
        self._chunks.append(text)

    def end(self, *, is_whole: bool = False) -> None:
        if self._call.scope.rollout.unfinished.pop(self._call.call_id, None) is not None:
            self._call.finish("hook", read_stream(self._chunks, is_whole=is_whole))


def _always(events: object) -> object:
    return lambda: events


def _watch(record: _StreamRecord, events: Iterator[_Event]) -> Iterator[_Event]:
    try:
        for event in events:
            record.see(event.data)
            yield event
    finally:
        record.end()


async def _watch_async(record: _StreamRecord, events: AsyncIterator[_Event]) -> AsyncIterator[_Event]:
    try:
        async for event in events:
            record.see(event.data)
            yield event
    finally:
        record.end()
