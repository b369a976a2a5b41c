"""This file holds calls that outlive a switch of weights: cut off at one engine, they go on where weights are
served.

To those who read it, such a call looks like one engine's answer.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from agent_layer.engines import Engine
from agent_layer.errors import EngineError
from agent_layer.gateway.calls.recording import Flight
from agent_layer.gateway.dialects import JoinedAnswer, continuation_body, read_stream_options, supports_continuation
from agent_layer.gateway.engines import EnginePool, PreemptedError, Provider
from agent_layer.gateway.upstream import Upstream
from agent_layer.schema import JsonObject

_JSON, _STREAM = "application/json", "text/event-stream"
_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}


def can_continue(flight: Flight) -> bool:
    """Whether an answer to this question may be cut and continued."""
    if isinstance(flight.engine, Provider):
        return False
    return supports_continuation(flight.question.request, flight.start.sampling_applied or {})


@asynccontextmanager
async def post_continued(flight: Flight, upstream: Upstream, places: EnginePool) -> AsyncGenerator["ContinuedReply"]:
    """Ask, and go on asking; the reply can be read inside the block.

    Raises: EngineError: an engine cannot be reached, does not answer, or not in HTTP; or none served in time.
    """
    async with AsyncExitStack() as leg:
        reply = ContinuedReply(flight, upstream, places, leg)
        await reply.begin()
        yield reply


class ContinuedReply:
    """An answer whose head has come.

    Args:
        flight: told of every change of engine.
        upstream: asks engines.
        places: where the call waits between two engines.
        leg: is left with each engine.
    """

    def __init__(self, flight: Flight, upstream: Upstream, places: EnginePool, leg: AsyncExitStack) -> None:
        self._flight = flight
        self._upstream = upstream
        self._places = places
        self._leg = leg
        self._joined = JoinedAnswer()
        request = flight.question.request
        self._wants_stream = bytes(request.pieces.get("stream", b"")) == b"true"
        self._wants_usage = not self._wants_stream or read_stream_options(request).include_usage

    @property
    def status(self) -> int:
        """Of the last answer."""
        return self._reply.status

    @property
    def content_type(self) -> str:
        """What the client asked for, not what the engine was asked for."""
        found = self._reply.content_type
        return _JSON if found == _STREAM and not self._wants_stream else found

    async def read(self) -> bytes:
        """The whole answer.

        Raises: EngineError: an engine broke off or took too long, or none served in time.
        """
        if self._reply.content_type != _STREAM:
            return await self._reply.read()
        async for _ in self.pieces():
            pass
        return self._joined.whole()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises: EngineError: an engine broke off or took too long, or none served in time.
        """
        while received := await self._next():
            if told := self._joined.feed(received):
                yield told

    async def begin(self) -> None:
        """Ask the flight's engine, or after a cut the one that serves then."""
        while not await self._ask():
            await self._change_engine()

    async def _ask(self) -> bool:
        """Whether the head of an answer came before a cut."""
        url, body = self._question()
        self._cut = self._leg.enter_context(self._places.cuts.watch(self._flight.engine.url))
        try:
            self._reply = await self._cut.unless(self._leg.enter_async_context(self._upstream.post(url, body)))
        except PreemptedError:
            return False
        self._received = self._reply.pieces()
        return True

    async def _next(self) -> bytes | None:
        while True:
            self._cut.is_allowed = self._joined.can_be_cut
            try:
                if self._cut.is_asked and self._cut.is_allowed:
                    raise PreemptedError  # noqa: TRY301  # it was asked for while something was on its way
                return await self._cut.unless(anext(self._received, None))
            except PreemptedError:
                await self._go_on()

    async def _go_on(self) -> None:
        await self._change_engine()
        await self.begin()
        if self._reply.content_type != _STREAM:
            said = (await self._reply.read())[:2000].decode("utf-8", "replace")
            url, status = self._flight.engine.url, self._reply.status
            raise EngineError(f"engine {url}: expected the rest of an answer, found {status} {said}; see its log")

    async def _change_engine(self) -> None:
        """Leave an engine, and wait for one that serves."""
        await self._leg.aclose()
        flight, question, before = self._flight, self._flight.question, self._flight.engine
        flight.leave(len(self._joined.token_ids))
        self._places.give(before)
        flight.arrive(await self._places.take(question.rollout, question.request))
        self._joined.go_on()
        if self._joined.token_ids:
            _check_alike(before, flight.engine)

    def _question(self) -> tuple[str, bytes]:
        engine, request = self._flight.engine, self._flight.question.request
        sampled = self._joined.token_ids
        if not sampled:
            overrides: JsonObject = {**self._flight.question.rollout.sampling_for(request.sampling)}
            told = overrides if self._wants_stream else overrides | _STREAMED
            return f"{engine.url}/v1/chat/completions", request.for_engine(engine.model, told)
        sampling = self._flight.start.sampling_applied or {}
        body = continuation_body(engine.model, sampling, self._joined.prompt, sampled, with_usage=self._wants_usage)
        return f"{engine.url}/v1/completions", body


def _check_alike(before: Engine, after: Engine) -> None:
    """An answer's tokens must mean the same, and its log-probabilities too."""
    tokenizers = {before.tokenizer_hash, after.tokenizer_hash} - {None}
    if before.logprobs_mode != after.logprobs_mode or len(tokenizers) > 1:
        raise EngineError(
            f"engine {after.url}: expected the tokenizer and kind of log-probabilities of {before.url}, whose answer it"
            " should continue, found others; start the engines of a run alike, or set switch_mode to wait"
        )
