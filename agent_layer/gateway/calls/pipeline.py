"""This file holds the way of one call: recognised, recorded, sent on, answered, recorded again.

The start is in the log before the request leaves, the end before the last byte of the answer returns. So
whatever is
killed, a call that an agent saw answered is stored whole, and a call that it did not is known to have begun.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count

from aiohttp import hdrs, web

from agent_layer.errors import BackPressureError, BadInputError, EngineError
from agent_layer.gateway.calls.continuation import ContinuedReply, can_continue, post_continued
from agent_layer.gateway.calls.disconnects import DisconnectWatcher
from agent_layer.gateway.calls.recording import Flight, Question
from agent_layer.gateway.calls.requests import read_text, retry_key
from agent_layer.gateway.dialects import (
    AnswerStream,
    ChatRequest,
    Dialect,
    RefusedError,
    error_shape,
    is_openai_error,
    openai_error,
    read_answer,
    read_count,
    read_engine_error,
    refusal,
    tokenize_body,
)
from agent_layer.gateway.engines import EnginePool
from agent_layer.gateway.rollouts import Call, LiveRollout, Log, ResponseCache, wait_until
from agent_layer.gateway.upstream import Reply, Upstream
from agent_layer.schema import new_id
from agent_layer.schema.wire import CALL_HEADER
from agent_layer.settings import Settings

_JSON, _STREAM = "application/json", "text/event-stream"
_LONGEST_ERROR = 2000
_FIRST_ERROR = 400


@dataclass(kw_only=True)
class Calls:
    """Makes the calls of all rollouts."""

    settings: Settings
    log: Log
    places: EnginePool
    upstream: Upstream
    shelf: ResponseCache
    disconnects: DisconnectWatcher = field(default_factory=DisconnectWatcher)
    _name: str = field(default_factory=lambda: new_id()[-8:])
    """Makes the ids of this process differ from those of another; minting each anew costs a system call."""
    _numbers: Iterator[int] = field(default_factory=count)

    async def answer(self, rollout: LiveRollout, http: web.Request, dialect: Dialect) -> web.StreamResponse:
        """Answer a question to the model, unless the client hangs up."""
        with self.disconnects.watch(http):
            return await self._answer(rollout, http, dialect)

    async def count_tokens(self, rollout: LiveRollout, request: ChatRequest) -> int:
        """Let an engine count the tokens of a prompt.

        Raises: EngineError: it cannot.
        """
        engine = await self.places.take(rollout)
        try:
            async with self.upstream.post(f"{engine.url}/tokenize", tokenize_body(request, engine.model)) as reply:
                return read_count(engine.url, reply.status, await reply.read())
        finally:
            self.places.give(engine)

    async def _answer(self, rollout: LiveRollout, http: web.Request, dialect: Dialect) -> web.StreamResponse:
        request = dialect.read(await read_text(http), rollout.trajectory_id)
        asked = rollout.see(request)
        asking = retry_key(http.headers, hash((http.path, asked.digest)))
        failed: Call | None = None
        while (before := rollout.calls.find(asking)) is not failed and before is not None:
            if await before.wait():
                return _say_again(before, request)
            failed = before  # of all who waited for it, one asks again; the others find that call and join it
        rollout.check_may_call()
        call = rollout.calls.add(asking, f"{self._name}-{next(self._numbers)}")
        self.disconnects.note(call)
        question = Question(
            rollout=rollout, request=request, asked=asked, call=call, headers=http.headers, dialect=dialect
        )
        rollout.num_asking += 1
        try:
            return await self._ask_in_time(question, http)
        finally:
            rollout.num_asking -= 1
            call.done.set()

    async def _ask_in_time(self, question: Question, http: web.Request) -> web.StreamResponse:
        """Ask, and cut off a call that outlasts its rollout's time."""
        try:
            async with asyncio.timeout(question.rollout.budget.seconds_left()):
                return await self._ask(question, http)
        except TimeoutError:
            if http.writer.output_size:  # part of a stream is sent, no refusal can follow it
                raise asyncio.CancelledError from None
            question.rollout.check_may_call()
            raise
        except asyncio.CancelledError:
            if http.transport is not None and not http.writer.output_size:
                question.rollout.check_is_open()  # it was closed meanwhile, and its agent still waits
            raise

    async def _ask(self, question: Question, http: web.Request) -> web.StreamResponse:
        """Find an engine, and make the call as a task that closing the rollout may cancel."""
        await self._wait_for_room()
        rollout, flight = question.rollout, None
        engine = await self.places.take(rollout, question.request)
        running, task = rollout.running, asyncio.current_task()
        try:
            flight = Flight.begin(question, engine, self.log)
            if task:
                running.add(task)
            while (answered := await self._send(flight, http)) is None:
                other = await self.places.take(rollout, question.request)
                self._give_back(flight)
                flight.move_to(other)
            return answered
        finally:
            if task:
                running.discard(task)
            if flight is None:
                self.places.give(engine)
            else:
                self._give_back(flight)
            if flight and not flight.is_ended:
                flight.end(None, "aborted", "the call was cut off")

    def _give_back(self, flight: Flight) -> None:
        if flight.has_place:
            self.places.give(flight.engine)

    async def _send(self, flight: Flight, http: web.Request) -> web.StreamResponse | None:
        """Ask an engine; None: it failed before the client saw anything of an answer, and another is well."""
        run = flight.question.rollout.started.run
        try:
            async with self._exchange(flight) as reply:
                if reply.status >= 500 and self.places.fails(flight.engine, run):
                    return None
                if reply.status != 200:
                    return _refused_by_engine(flight, http.path, reply, await reply.read())
                if reply.content_type == _STREAM:
                    return await self._stream(flight, http, reply)
                return self._whole(flight, await reply.read())
        except EngineError as error:
            if not flight.is_ended and self.places.fails(flight.engine, run) and not http.writer.output_size:
                return None
            flight.end(None, "error", str(error))
            raise

    def _exchange(self, flight: Flight) -> AbstractAsyncContextManager[Reply | ContinuedReply]:
        """Ask the engine, in a way that outlives a switch of weights where that is wanted and possible."""
        if self.settings.switch_mode == "abort" and can_continue(flight):
            return post_continued(flight, self.upstream, self.places)
        return self.upstream.post(f"{flight.engine.url}/v1/chat/completions", flight.body(), flight.headers)

    def _whole(self, flight: Flight, body: bytes) -> web.Response:
        call = flight.question.call
        answer = read_answer(body, flight.question.request, flight.engine.version)
        said = flight.question.dialect.write(answer, flight.exchange())
        is_cut = any(action.finish_reason == "abort" for action in answer.actions)
        flight.end(answer, "aborted" if is_cut else "ok")
        if call.is_good:
            self.shelf.keep(call, said, _JSON)
        return _response(call, said, _JSON)

    async def _stream(self, flight: Flight, http: web.Request, reply: Reply | ContinuedReply) -> web.StreamResponse:
        call = flight.question.call
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: _STREAM, CALL_HEADER: call.call_id})
        stream, sent, pieces = flight.question.dialect.stream(flight.exchange()), list[bytes](), reply.pieces()
        received = await anext(pieces, None)  # an engine that dies before it can be replaced by another
        try:
            await response.prepare(http)
        except ConnectionError:  # the client left before its answer began
            raise asyncio.CancelledError from None
        try:
            while received is not None:
                sent.append(stream.feed(received))
                if stream.is_done and not flight.is_ended:
                    _land(flight, stream)
                if sent[-1] and not await _write(response, sent[-1]):
                    break
                received = await anext(pieces, None)
            else:
                sent.append(_closing(stream, flight))
                await _write(response, sent[-1])
        except EngineError as error:
            await _write(response, stream.fail(str(error)))
        finally:
            if not flight.is_ended:
                _land(flight, stream)
        if call.is_good:
            self.shelf.keep(call, b"".join(sent), _STREAM)
        return response

    async def _wait_for_room(self) -> None:
        """Let the shipper catch up before another call begins."""
        limit = self.settings.log_quota_bytes
        if not self.log.has_room() and not await wait_until(self.log.has_room, self.settings.log_wait_seconds):
            raise BackPressureError(
                f"gateway: its log {self.settings.log_dir} is over {limit} bytes, because nothing could be shipped;"
                " look at shipper.log there, and whether Redis and the object store answer"
            )


def _closing(stream: AnswerStream, flight: Flight) -> bytes:
    """Record a stream that the engine closed, if that is still to be done; give what the client must see of its end."""
    if stream.is_done or stream.error is not None:
        return b""
    seen = stream.feed(b"\n")
    stream.answer(flight.engine.version)
    if not stream.is_done and stream.error is None:
        cut = f"engine {flight.engine.url}: its stream ended before its answer did; ask again"
        seen += stream.feed(b"data: [DONE]\n\n") if stream.is_complete else stream.fail(cut)
    _land(flight, stream)
    return seen


def _land(flight: Flight, stream: AnswerStream) -> None:
    """Record a stream that ended: well, with an error, or because the client or the gateway cut it off."""
    answer = stream.answer(flight.engine.version)
    if stream.error is not None:
        flight.end(answer, "error", stream.error[:_LONGEST_ERROR])
    elif stream.is_complete:
        flight.end(answer, "ok")
    else:
        flight.end(answer, "aborted", "the stream was cut off")


def _refused_by_engine(flight: Flight, path: str, reply: Reply | ContinuedReply, body: bytes) -> web.Response:
    said = body[:_LONGEST_ERROR].decode("utf-8", "replace")
    if reply.status < _FIRST_ERROR:
        raise EngineError(
            f"engine {flight.engine.url}: expected an answer or an error, found status {reply.status} {said}"
        )
    flight.end(None, "error", f"{reply.status} {said}")
    if error_shape(path) is openai_error and is_openai_error(body):
        return web.Response(status=reply.status, body=body, content_type=_JSON)
    return refusal(path, reply.status, *read_engine_error(body[:_LONGEST_ERROR]))


def _say_again(call: Call, request: ChatRequest) -> web.Response:
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
    return _response(call, call.answer, call.content_type)


def _response(call: Call, body: bytes, content_type: str) -> web.Response:
    return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type, CALL_HEADER: call.call_id})


async def _write(response: web.StreamResponse, seen: bytes) -> bool:
    """Whether the client still took it."""
    try:
        await response.write(seen)
    except ConnectionError:
        return False
    return True
