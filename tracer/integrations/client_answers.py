"""This file holds how results of the openai and anthropic clients are recorded, whichever way the caller wants them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from inspect import iscoroutine
from typing import Protocol, cast

from tracer.calls import Answer, Call
from tracer.integrations.dialects import Dialect
from tracer.integrations.unfinished import Unfinished

__all__ = ["record_answer"]

_DECODER = "_decoder"
"""Attribute of a stream: what makes events of bytes. Not public, but in every version of both clients."""
_RAW_HEADER = "x-stainless-raw-response"


class _Event(Protocol):
    """One server-sent event."""

    @property
    def data(self) -> str: ...


class _Decoder(Protocol):
    def iter_bytes(self, iterator: Iterator[bytes]) -> Iterator[_Event]: ...
    def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[_Event]: ...


class _Request(Protocol):
    headers: Mapping[str, str]


class _Http(Protocol):
    is_stream_consumed: bool
    request: _Request

    @property
    def content(self) -> bytes: ...


class _RawResponse(Protocol):
    """What ``with_raw_response`` and ``with_streaming_response`` give."""

    http_response: _Http

    def parse(self) -> object: ...


def record_answer(call: Call, result: object, dialect: Dialect) -> None:
    """Record the end of a call: now, or while its stream is read, before the last event is handed on."""
    dump = cast("Callable[..., str] | None", getattr(result, "model_dump_json", None))
    if dump is not None:
        call.finish("hook", dialect.read_answer(dump(exclude_unset=True, warnings=False).encode()))
    elif (decoder := getattr(result, _DECODER, None)) is not None:
        setattr(result, _DECODER, _WatchedDecoder(cast("_Decoder", decoder), Unfinished(call, dialect)))
    else:
        _record_raw(call, cast("_RawResponse", result), dialect)


def _record_raw(call: Call, response: _RawResponse, dialect: Dialect) -> None:
    http = response.http_response
    if http.is_stream_consumed:
        call.finish("hook", dialect.read_answer(http.content))
        return
    is_raw = http.request.headers.get(_RAW_HEADER) not in (None, "stream")
    parsed = response.parse() if is_raw else None  # the response keeps it, and gives the same stream to the caller
    if iscoroutine(parsed):
        parsed.close()
    if hasattr(parsed, _DECODER):
        record_answer(call, parsed, dialect)
    else:  # the caller reads it in a way of its own
        call.finish("hook", Answer(findings=["answer_not_read"]))


class _WatchedDecoder:
    """Makes events as the stream's own decoder does, and sees each before the caller does."""

    def __init__(self, decoder: _Decoder, record: Unfinished) -> None:
        self._decoder, self._record = decoder, record

    def iter_bytes(self, iterator: Iterator[bytes]) -> Generator[_Event]:
        try:
            for event in self._decoder.iter_bytes(iterator):
                self._record.see(event.data)
                yield event
        finally:
            self._record.end()

    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncGenerator[_Event]:
        try:
            async for event in self._decoder.aiter_bytes(iterator):
                self._record.see(event.data)
                yield event
        finally:
            self._record.end()
