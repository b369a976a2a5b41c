"""Calls that survive a switch of weights: preempted at one engine, they go on at the next one that serves.

The client reads one answer, as if a single engine had sampled it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from agent_layer.engines import KINDS
from agent_layer.errors import EngineError
from agent_layer.gateway.calls.call import ModelCall
from agent_layer.gateway.dialects.chat import CHAT
from agent_layer.gateway.dialects.continuation import (
    JoinedAnswer,
    continuation_body,
    read_stream_options,
    supports_continuation,
)
from agent_layer.gateway.engines.pool import EnginePool
from agent_layer.gateway.engines.preemption import PreemptedError
from agent_layer.gateway.upstream.client import Upstream

_JSON, _STREAM = "application/json", "text/event-stream"
_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}


def can_continue(call: ModelCall) -> bool:
    """Whether the call's answer may be preempted and continued."""
    held, request = call.held, call.parsed.request
    if held is None or request.endpoint != CHAT or not KINDS[held.kind].streams_ids:
        return False
    return supports_continuation(request, call.route.sampling)


@asynccontextmanager
async def post_continued(call: ModelCall, upstream: Upstream, pool: EnginePool) -> AsyncGenerator["ContinuedReply"]:
    """Send the request, and after each preemption its continuation; the reply can be read inside the block.

    Raises: EngineError: an engine cannot be reached, does not answer, or not in HTTP; or none served in time.
    """
    async with AsyncExitStack() as leg:
        reply = ContinuedReply(call, upstream, pool, leg)
        await reply.begin()
        yield reply


class ContinuedReply:
    """An answer whose head has come.

    Args:
        call: its target changes with every preemption.
        upstream: sends requests to engines.
        pool: where the call waits between two engines.
        leg: closed when the call leaves an engine.
    """

    def __init__(self, call: ModelCall, upstream: Upstream, pool: EnginePool, leg: AsyncExitStack) -> None:
        self._call = call
        self._upstream = upstream
        self._pool = pool
        self._leg = leg
        self._joined = JoinedAnswer()
        request = call.parsed.request
        self._is_streamed = bytes(request.pieces.get("stream", b"")) == b"true"
        self._has_usage = not self._is_streamed or read_stream_options(request).include_usage

    @property
    def status(self) -> int:
        """Of the last answer."""
        return self._reply.status

    @property
    def content_type(self) -> str:
        """What the client asked for, not what the engine was asked for."""
        found = self._reply.content_type
        return _JSON if found == _STREAM and not self._is_streamed else found

    async def read(self) -> bytes:
        """Return the whole answer.

        Raises: EngineError: an engine broke off or took too long, or none served in time.
        """
        if self._reply.content_type != _STREAM:
            return await self._reply.read()
        async for _ in self.pieces():
            pass
        return self._joined.whole()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes.

        Raises: EngineError: an engine broke off or took too long, or none served in time.
        """
        while received := await self._next():
            if events := self._joined.feed(received):
                yield events

    async def begin(self) -> None:
        """Ask the call's engine, or after a preemption the one that serves then."""
        while not await self._ask():
            await self._change_engine()

    async def _ask(self) -> bool:
        """Whether the head of an answer came before a preemption."""
        url, body = self._request()
        self._preemption = self._leg.enter_context(self._pool.preemptions.watch(self._call.route.url))
        try:
            headers = self._pool.make_headers(self._call.route.url)
            self._reply = await self._preemption.run(
                self._leg.enter_async_context(self._upstream.post(url, body, headers))
            )
        except PreemptedError:
            return False
        self._received = self._reply.pieces()
        return True

    async def _next(self) -> bytes | None:
        while True:
            self._preemption.is_allowed = self._joined.can_be_cut
            try:
                if self._preemption.is_requested and self._preemption.is_allowed:
                    raise PreemptedError  # noqa: TRY301  # requested while something was on its way
                return await self._preemption.run(anext(self._received, None))
            except PreemptedError:
                await self._continue()

    async def _continue(self) -> None:  # kept: an error raised inside the except would name the preemption as cause
        await self._change_engine()
        await self.begin()
        if self._reply.content_type != _STREAM:
            found = (await self._reply.read())[:2000].decode("utf-8", "replace")
            url, status = self._call.route.url, self._reply.status
            raise EngineError(f"engine {url}: expected the rest of an answer, found {status} {found}; see its log")

    async def _change_engine(self) -> None:
        """Leave an engine, and wait for one that serves."""
        await self._leg.aclose()
        call = self._call
        if before := call.preempt(len(self._joined.token_ids)):
            self._pool.release(before)
        after = await self._pool.acquire(call.rollout)
        call.assign(after)
        if before and before.kind != after.kind:
            raise EngineError(
                f"engine {after.url}: expected the kind of {before.url}, {before.kind}, to go on with its call, found"
                f" {after.kind}; start the engines of a run alike, or set switch_mode to wait"
            )
        self._joined.go_on()
        if self._joined.token_ids and before:  # tokens and log-probabilities must mean the same at both
            tokenizers = {before.tokenizer_hash, after.tokenizer_hash} - {None}
            if before.logprobs_mode != after.logprobs_mode or len(tokenizers) > 1:
                raise EngineError(
                    f"engine {after.url}: expected the tokenizer and kind of log-probabilities of {before.url}, whose"
                    " answer it should continue, found others; start the engines of a run alike, or set switch_mode to"
                    " wait"
                )

    def _request(self) -> tuple[str, bytes]:
        """Address and body of the next request: the chat itself, or what is left of its answer."""
        route, request, sampled = self._call.route, self._call.parsed.request, self._joined.token_ids
        if not sampled:
            fields = route.changes if self._is_streamed else route.changes | _STREAMED
            return f"{route.url}/v1/chat/completions", request.for_engine(route.model, fields)
        body = continuation_body(route.model, route.sampling, self._joined.prompt, sampled, with_usage=self._has_usage)
        return f"{route.url}/v1/completions", body
