"""How an engine's reply becomes the client's response.

The last byte must wait until the end of the call is recorded. So an answer is delivered in steps: ``relay`` sends
everything up to its last bytes, ``ending`` returns how the call ended, and ``finish`` sends the rest.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec
from aiohttp import hdrs, web

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.calls.call import ModelCall
from agent_layer.gateway.calls.client import Client
from agent_layer.gateway.calls.end_parts import Ending
from agent_layer.gateway.calls.requests import in_background
from agent_layer.gateway.dialects.base import AnswerStream
from agent_layer.gateway.dialects.chat import CHAT, ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, read_answer
from agent_layer.gateway.dialects.completions import read_side_answer
from agent_layer.gateway.dialects.endings import AnswerEnd, judge_end
from agent_layer.gateway.dialects.refusals import (
    BAD_REQUEST,
    CONTEXT_FULL,
    NO_TOOL_PARSER,
    NOT_SERVED,
    RefusedError,
    error_shape,
    is_context_full,
    is_openai_error,
    lacks_tool_parser,
    openai_error,
    read_engine_error,
    refusal,
)
from agent_layer.gateway.rollouts.retries import Call
from agent_layer.schema import CALL_HEADER, UNREADABLE

_JSON, _STREAM = "application/json", "text/event-stream"
_MAX_ERROR_LENGTH = 2000
_FIRST_ERROR = 400
_NO_TOOL_PARSER = (
    "engine {}: expected a parser of tool calls for a request with tools, found none; start it with 'agent-layer up"
    " --model DIR --tool-parser NAME', or vLLM with --enable-auto-tool-choice --tool-call-parser NAME"
)


_WrittenAnswer: TypeAlias = tuple[web.Response, bytes]
"""(response, its body)."""
_NO_ENDPOINT: Final = (404, 405, 501)
_NO_SIDE_ENDPOINT = (
    "engine {}: expected it to serve /v1/{}, found {} {!r}; name a model in AGENT_LAYER_MODELS whose server does, or"
    " give the agent a client of its own for that"
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
    """An answer that has begun; before ``relay`` the client has seen its head at most."""

    content_type: str
    is_delivered: bool
    """The client was there for the last bytes; known after ``finish``."""

    @property
    def body(self) -> bytes:
        """Everything that the client is sent; complete after ``finish``."""
        ...

    async def relay(self) -> None:
        """Send all but the last bytes. A failure of the engine ends the answer as its dialect says."""
        ...

    def ending(self) -> Ending:
        """Return how the call ended, after ``relay`` or wherever that was stopped; once."""
        ...

    async def finish(self) -> web.Response | None:
        """Send the rest, or return it. The call's end must be recorded."""
        ...


@dataclass(frozen=True)
class BegunReply:
    """A reply whose beginning is read."""

    status: int
    content_type: str
    first: bytes
    """Its first piece, or all of it."""
    rest: AsyncIterator[bytes] | None = None

    async def read(self) -> bytes:
        """See Reply."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """See Reply."""
        yield self.first
        if self.rest is not None:
            async for piece in self.rest:
                yield piece


class _ErrorCode(msgspec.Struct):
    code: int = 0


class _ErrorEvent(msgspec.Struct):
    error: _ErrorCode


_ERROR_EVENT: Final = re.compile(rb'data: (\{"error":.*\})\s*(?:data: \[DONE\]\s*)?')
_EVENT: Final = msgspec.json.Decoder(_ErrorEvent)


async def read_beginning(reply: Reply) -> Reply:
    """Return a reply with the status that it means: vLLM refuses some streams in their first event, after status 200.

    Raises: EngineError: the engine broke off.
    """
    if reply.status != 200 or reply.content_type != _STREAM:
        return reply
    pieces = reply.pieces()
    if (first := await anext(pieces, None)) is None:
        return BegunReply(200, _STREAM, b"")
    if (found := _ERROR_EVENT.fullmatch(first)) is not None:
        with suppress(*UNREADABLE):
            if (status := _EVENT.decode(found[1]).error.code) in BAD_REQUEST:
                return BegunReply(status, _JSON, found[1])
    return BegunReply(200, _STREAM, first, pieces)


async def read_reply(call: ModelCall, client: Client, reply: Reply) -> Delivery:
    """Read as much of an engine's reply as shows that it answers: the beginning of a stream, else all of it.

    Raises: EngineError: the engine broke off before the client saw anything, or its answer cannot be read.
    """
    if reply.status != 200:
        return refuse(call, client, reply.status, await reply.read())
    if reply.content_type == _STREAM:
        return await _begin_stream(call, client, reply)
    received, parsed = await reply.read(), call.parsed
    version, exchange = call.route.version, call.exchange()  # of now: the call may have moved while it was read

    size_bytes = max(len(received), parsed.size_bytes)

    request, num_choices = parsed.request, exchange.num_choices
    answer, ending = await in_background(size_bytes, lambda: _read_whole(received, request, version, num_choices))

    def write() -> _WrittenAnswer:
        body = parsed.dialect.write(answer, exchange)
        return _respond(call.entry, body, _JSON), body

    return WholeAnswer(client, ending, write, size_bytes)


def _read_whole(received: bytes, request: ChatRequest, version: int, num_choices: int) -> tuple[ChatAnswer, Ending]:
    if request.endpoint == CHAT:
        answer = read_answer(received, request, version, num_choices)
    else:
        answer = read_side_answer(received, request.endpoint)
    return answer, end_answer(answer, judge_end(answer, num_choices))


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
    if call.content_type != (request.stream_type if request.is_streamed else _JSON):
        raise BadInputError(
            f"call {call.call_id}: expected to be repeated as it was asked, found stream={request.is_streamed} the"
            " second time; repeat it in the same form, or ask under another call id"
        )
    return _respond(call, call.answer, call.content_type)


@dataclass(slots=True)
class WholeAnswer:
    """An answer, or an error, in one piece."""

    client: Client
    ended: Ending
    write: Callable[[], _WrittenAnswer]
    """Returns it in the client's dialect."""
    size_bytes: int = 0
    """Size of what is written; see ``in_background``."""
    content_type: str = _JSON
    is_delivered: bool = False
    response: web.Response = field(init=False)
    body: bytes = field(init=False)

    async def relay(self) -> None:
        """Write the answer. All of it waits.

        Raises: RefusedError: the dialect writes a failed answer as an error.
        """
        self.response, self.body = await in_background(self.size_bytes, self.write)

    def ending(self) -> Ending:
        """See Delivery."""
        return self.ended

    async def finish(self) -> web.Response:
        """See Delivery."""
        self.is_delivered = not self.client.is_gone
        return self.response


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that the client reads as it comes."""

    call: ModelCall
    client: Client
    stream: AnswerStream
    first: bytes | None
    """Piece of the engine's body that is read already; None: the body is empty."""
    pieces: AsyncIterator[bytes]
    content_type: str
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
                await self.client.send(piece)
        except ConnectionError:
            self.is_client_gone = True

    async def relay(self) -> None:
        """See Delivery."""
        received = self.first
        try:
            while received is not None and not self.is_client_gone:
                seen = self.stream.feed(received)
                if self.stream.is_done:
                    self.last = seen
                    return
                await self.send(seen)
                if not self.is_client_gone:
                    received = await anext(self.pieces, None)
            if not self.is_client_gone:
                self.last = self._close_stream()
        except EngineError as error:
            self.last = self.stream.fail(str(error))

    def _close_stream(self) -> bytes:
        """Return what the client must see of a stream that the engine closed without its closing event."""
        stream, route = self.stream, self.call.route
        if stream.error is not None:
            return b""
        seen = stream.feed(b"\n")
        stream.answer(route.version)  # reads what waits, and finds errors there
        if stream.is_done or stream.error is not None:
            return seen
        cut = f"engine {route.url}: its stream ended before its answer did; ask again"
        return seen + (stream.feed(b"data: [DONE]\n\n") if stream.is_complete else stream.fail(cut))

    def ending(self) -> Ending:
        """See Delivery."""
        stream, answer = self.stream, self.stream.answer(self.call.route.version)
        end = judge_end(answer, self.call.exchange().num_choices)
        if stream.error is not None:
            return Ending("error", answer, stream.error[:_MAX_ERROR_LENGTH], end.findings, spends_turn=False)
        if end.status != "ok" and not stream.is_done:  # the client left, or the call was stopped
            return Ending("aborted", answer, "the stream was cut off")
        return end_answer(answer, end)

    async def finish(self) -> None:
        """Send what waits, then read the engine's body to its end: so its connection serves the next call."""
        if not self.is_client_gone:
            await self.send(self.last)
        self.is_delivered = not self.is_client_gone
        try:
            while not self.is_client_gone and (received := await anext(self.pieces, None)) is not None:
                await self.send(self.stream.feed(received))
        except EngineError as error:
            await self.send(self.stream.fail(str(error)))


async def _begin_stream(call: ModelCall, client: Client, reply: Reply) -> StreamedAnswer:
    if isinstance(reply, BegunReply) and reply.rest is not None:  # so no piece passes through one more generator
        first, pieces = reply.first, reply.rest
    else:
        pieces = reply.pieces()
        first = await anext(pieces, None)  # an engine that fails before this can be replaced by another
    stream = call.parsed.dialect.stream(call.exchange())
    form = call.parsed.request.stream_type
    answer = StreamedAnswer(call, client, stream, first, pieces, form)
    call.has_sent = True
    try:
        await client.begin(_make_headers(call.entry, form))
    except ConnectionError:  # the client left before its answer began
        raise asyncio.CancelledError from None
    return answer


def end_answer(answer: ChatAnswer, end: AnswerEnd) -> Ending:
    """How a call ends whose answer is not expected to go on."""
    return Ending(end.status, answer, end.error, end.findings, spends_turn=end.spends_turn)


def refuse(call: ModelCall, client: Client, status: int, body: bytes) -> WholeAnswer:
    """Return an engine's error in the shape that the client reads.

    Raises: EngineError: it is no error.
    """
    path = client.path
    found = body[:_MAX_ERROR_LENGTH].decode("utf-8", "replace")
    if status < _FIRST_ERROR:
        raise EngineError(f"engine {call.route.url}: expected an answer or an error, found status {status} {found}")
    ending = Ending("error", error=f"{status} {found}", spends_turn=status in BAD_REQUEST)
    if is_context_full(status, body[:_MAX_ERROR_LENGTH]):
        ending = Ending("error", error=f"{status} {found}", is_context_full=True)
        shown = refusal(path, _FIRST_ERROR, CONTEXT_FULL, read_engine_error(body[:_MAX_ERROR_LENGTH])[1])
    elif lacks_tool_parser(status, body[:_MAX_ERROR_LENGTH]):
        ending = Ending("error", error=f"{status} {found}", spends_turn=False)
        shown = refusal(path, status, NO_TOOL_PARSER, _NO_TOOL_PARSER.format(call.route.url))
    elif status in _NO_ENDPOINT and (endpoint := call.parsed.request.endpoint) != CHAT:
        sentence = read_engine_error(body[:_MAX_ERROR_LENGTH])[1]
        shown = refusal(path, 404, NOT_SERVED, _NO_SIDE_ENDPOINT.format(call.route.url, endpoint, status, sentence))
    elif error_shape(path) is openai_error and is_openai_error(body):
        shown = web.Response(status=status, body=body, content_type=_JSON)
    else:
        shown = refusal(path, status, *read_engine_error(body[:_MAX_ERROR_LENGTH]))
    return WholeAnswer(client, ending, lambda: (shown, body))


def _respond(call: Call, body: bytes, content_type: str) -> web.Response:
    return web.Response(body=body, headers=_make_headers(call, content_type))


def _make_headers(call: Call, content_type: str) -> dict[str, str]:
    """Return the headers of an answer; those of a stream keep proxies from storing it or holding it back."""
    headers = {hdrs.CONTENT_TYPE: content_type, CALL_HEADER: call.call_id}
    return headers if content_type != _STREAM else headers | {hdrs.CACHE_CONTROL: "no-cache", "X-Accel-Buffering": "no"}
