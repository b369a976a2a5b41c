"""How an engine's reply becomes the client's response.

The last byte must wait until the end of the call is recorded. So each answer comes in two parts: everything up to its
last bytes, which sets how the call ended, and ``finish``, which sends them.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import hdrs, web

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.calls.call import Ending, ModelCall
from agent_layer.gateway.calls.requests import in_background
from agent_layer.gateway.dialects import (
    BAD_REQUEST,
    CONTEXT_FULL,
    NO_TOOL_PARSER,
    AnswerEnd,
    AnswerStream,
    ChatAnswer,
    ChatRequest,
    RefusedError,
    error_shape,
    is_context_full,
    is_openai_error,
    judge_end,
    lacks_tool_parser,
    openai_error,
    read_answer,
    read_engine_error,
    refusal,
)
from agent_layer.gateway.rollouts import Call
from agent_layer.schema.wire import CALL_HEADER

_JSON, _STREAM = "application/json", "text/event-stream"
_MAX_ERROR_LENGTH = 2000
_FIRST_ERROR = 400
_NO_TOOL_PARSER = (
    "engine {}: expected a parser of tool calls for a request with tools, found none; start it with 'agent-layer up"
    " --model DIR --tool-parser NAME', or vLLM with --enable-auto-tool-choice --tool-call-parser NAME"
)


class Reply(Protocol):
    """An engine's answer whose head has come."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def content_type(self) -> str:
        """Without parameters, in small letters."""
        ...

    async def read(self) -> bytes:
        """Return the whole body."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        ...


class Delivery(Protocol):
    """An answer whose last bytes wait."""

    content_type: str
    is_delivered: bool
    """The client was there for the last bytes; known after ``finish``."""

    @property
    def body(self) -> bytes:
        """Everything that the client is sent; complete after ``finish``."""
        ...

    async def finish(self) -> web.StreamResponse:
        """Send the rest. The call's end must be recorded."""
        ...


async def read_reply(call: ModelCall, http: web.Request, reply: Reply) -> Delivery:
    """Read an engine's reply up to its last bytes, and set how the call ends.

    Raises: EngineError: the engine broke off before the client saw anything, or its answer cannot be read.
    """
    if reply.status != 200:
        return refuse(call, http, reply.status, await reply.read())
    if reply.content_type == _STREAM:
        return await _relay_stream(call, http, reply)
    received, parsed = await reply.read(), call.parsed
    version, exchange = call.route.version, call.exchange()  # of now: the call may have moved while it was read

    def read() -> bytes:
        answer = read_answer(received, parsed.request, version, exchange.num_choices)
        call.ending = end_answer(answer, judge_end(answer, exchange.num_choices))
        return parsed.dialect.write(answer, exchange)

    body = await in_background(max(len(received), parsed.size_bytes), read)
    return WholeAnswer(http, _respond(call.entry, body, _JSON), body)


def repeat_response(call: Call, request: ChatRequest) -> web.Response:
    """Answer a retry with what the client was sent before.

    Raises: RefusedError: the answer left the cache. BadInputError: the retry changes between whole and streamed.
    """
    if call.answer is None:
        raise RefusedError(
            410,
            "answer_gone",
            f"call {call.call_id}: it was answered, and the answer is not kept any more; ask under another call id",
        )
    if (call.content_type == _STREAM) != request.is_streamed:
        raise BadInputError(
            f"call {call.call_id}: expected to be repeated as it was asked, found stream={request.is_streamed} the"
            " second time; repeat it in the same form, or ask under another call id"
        )
    return _respond(call, call.answer, call.content_type)


@dataclass(slots=True)
class WholeAnswer:
    """An answer, or an error, in one piece."""

    http: web.Request
    response: web.Response
    body: bytes
    content_type: str = _JSON
    is_delivered: bool = False

    async def finish(self) -> web.Response:
        """See Delivery."""
        self.is_delivered = self.http.transport is not None
        return self.response


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that the client reads as it comes."""

    response: web.StreamResponse
    stream: AnswerStream
    pieces: AsyncIterator[bytes]
    content_type: str = _STREAM
    last: bytes = b""
    """Not sent yet."""
    is_client_gone: bool = False
    is_delivered: bool = False
    _sent: list[bytes] = field(default_factory=list[bytes])

    @property
    def body(self) -> bytes:
        """See Delivery."""
        return b"".join(self._sent)

    async def send(self, piece: bytes) -> None:
        """Send a piece; a client that left is noted."""
        self._sent.append(piece)
        try:
            if piece:
                await self.response.write(piece)
        except ConnectionError:
            self.is_client_gone = True

    async def finish(self) -> web.StreamResponse:
        """Send what waits, then read the engine's body to its end: so its connection serves the next call."""
        if not self.is_client_gone:
            await self.send(self.last)
        self.is_delivered = not self.is_client_gone
        try:
            while not self.is_client_gone and (received := await anext(self.pieces, None)) is not None:
                await self.send(self.stream.feed(received))
        except EngineError as error:
            await self.send(self.stream.fail(str(error)))
        return self.response


async def _relay_stream(call: ModelCall, http: web.Request, reply: Reply) -> StreamedAnswer:
    pieces = reply.pieces()
    received = await anext(pieces, None)  # an engine that fails before this can be replaced by another
    stream = call.parsed.dialect.stream(call.exchange())
    headers = {hdrs.CONTENT_TYPE: _STREAM, CALL_HEADER: call.entry.call_id}
    answer = StreamedAnswer(web.StreamResponse(headers=headers), stream, pieces)
    call.has_sent = True
    try:
        await answer.response.prepare(http)
    except ConnectionError:  # the client left before its answer began
        raise asyncio.CancelledError from None
    try:
        while received is not None and not answer.is_client_gone:
            seen = stream.feed(received)
            if stream.is_done:
                answer.last = seen
                return answer
            await answer.send(seen)
            if not answer.is_client_gone:
                received = await anext(pieces, None)
        if not answer.is_client_gone:
            answer.last = _close_stream(call, stream)
    except EngineError as error:
        answer.last = stream.fail(str(error))
    finally:
        call.ending = _end_stream(stream.answer(call.route.version), stream, call.exchange().num_choices)
    return answer


def _close_stream(call: ModelCall, stream: AnswerStream) -> bytes:
    """Return what the client must see of a stream that the engine closed without its closing event."""
    if stream.error is not None:
        return b""
    seen = stream.feed(b"\n")
    stream.answer(call.route.version)  # reads what waits, and finds errors there
    if stream.is_done or stream.error is not None:
        return seen
    cut = f"engine {call.route.url}: its stream ended before its answer did; ask again"
    return seen + (stream.feed(b"data: [DONE]\n\n") if stream.is_complete else stream.fail(cut))


def _end_stream(answer: ChatAnswer, stream: AnswerStream, num_choices: int) -> Ending:
    end = judge_end(answer, num_choices)
    if stream.error is not None:
        return Ending("error", answer, stream.error[:_MAX_ERROR_LENGTH], end.findings, spends_turn=False)
    if end.status != "ok" and not stream.is_done:  # the client left, or the call was stopped
        return Ending("aborted", answer, "the stream was cut off")
    return end_answer(answer, end)


def end_answer(answer: ChatAnswer, end: AnswerEnd) -> Ending:
    """How a call ends whose answer is not expected to go on."""
    return Ending(end.status, answer, end.error, end.findings, spends_turn=end.spends_turn)


def refuse(call: ModelCall, http: web.Request, status: int, body: bytes) -> WholeAnswer:
    """Return an engine's error in the shape that the client reads, and set how the call ends.

    Raises: EngineError: it is no error.
    """
    path = http.path
    found = body[:_MAX_ERROR_LENGTH].decode("utf-8", "replace")
    if status < _FIRST_ERROR:
        raise EngineError(f"engine {call.route.url}: expected an answer or an error, found status {status} {found}")
    if is_context_full(status, body[:_MAX_ERROR_LENGTH]):
        call.ending = Ending("error", error=f"{status} {found}", is_context_full=True)
        return WholeAnswer(
            http, refusal(path, _FIRST_ERROR, CONTEXT_FULL, read_engine_error(body[:_MAX_ERROR_LENGTH])[1]), body
        )
    if lacks_tool_parser(status, body[:_MAX_ERROR_LENGTH]):
        call.ending = Ending("error", error=f"{status} {found}", spends_turn=False)
        return WholeAnswer(http, refusal(path, status, NO_TOOL_PARSER, _NO_TOOL_PARSER.format(call.route.url)), body)
    call.ending = Ending("error", error=f"{status} {found}", spends_turn=status in BAD_REQUEST)
    if error_shape(path) is openai_error and is_openai_error(body):
        return WholeAnswer(http, web.Response(status=status, body=body, content_type=_JSON), body)
    return WholeAnswer(http, refusal(path, status, *read_engine_error(body[:_MAX_ERROR_LENGTH])), body)


def _respond(call: Call, body: bytes, content_type: str) -> web.Response:
    return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type, CALL_HEADER: call.call_id})
