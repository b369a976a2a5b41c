"""The path of a model call: parsed, admitted, running, ended (``ModelCall``), around one coroutine.

The start is in the log before the request leaves, and the end before the last byte of the answer returns. Whatever
process is killed: a call that an agent saw answered is stored whole, and any other call is known to have begun.

    answer ── repeats a call that was answered? ──▶ its answer
      │
      └─ admit ── run ── find a target ── begin ── exchange ── end ── last bytes
                                            ▲         │
                                            └─────────┘ the engine failed, and the client saw nothing of an answer

Three scopes can stop the coroutine: the client's connection, the rollout's time, and the closing of the rollout.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import msgspec
from aiohttp import web

from agent_layer.engines import Engine
from agent_layer.errors import BackPressureError, BadInputError, EngineError
from agent_layer.gateway.calls.arrangement import arrange
from agent_layer.gateway.calls.call import ModelCall, ParsedCall, Room, choose_sampling_policy
from agent_layer.gateway.calls.client import Client
from agent_layer.gateway.calls.continuation import can_continue, post_continued
from agent_layer.gateway.calls.delivery import Delivery, Reply, read_beginning, read_reply, refuse, repeat_response
from agent_layer.gateway.calls.disconnects import DisconnectWatcher, WatchedClient
from agent_layer.gateway.calls.end_parts import CUT_OFF, Ending
from agent_layer.gateway.calls.forms import describe_form
from agent_layer.gateway.calls.requests import in_background, is_large, retry_key
from agent_layer.gateway.calls.sampling import SamplingPolicy
from agent_layer.gateway.calls.spending import Spending
from agent_layer.gateway.calls.whole_replies import WholeReply
from agent_layer.gateway.dialects.base import Dialect
from agent_layer.gateway.dialects.chat import CHAT, ChatRequest, read_count, tokenize_body
from agent_layer.gateway.dialects.refusals import BAD_REQUEST, RefusedError, find_refused_options, is_context_full
from agent_layer.gateway.dialects.turns import refuse_hosted
from agent_layer.gateway.engines.models import ExternalModel
from agent_layer.gateway.engines.pool import EnginePool
from agent_layer.gateway.rollouts.body_quota import HeldBytes
from agent_layer.gateway.rollouts.callers import Caller, SideCalls, judge_caller
from agent_layer.gateway.rollouts.finalize import wait_until
from agent_layer.gateway.rollouts.log_protocol import Log
from agent_layer.gateway.rollouts.media import check_media
from agent_layer.gateway.rollouts.retries import ResponseCache
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.gateway.upstream.client import Upstream, was_reached
from agent_layer.schema import mend_surrogates, new_id
from agent_layer.settings import Settings

_KEY_REFUSED: Final = (401, 403)
_OWN_FAULT: Final = 500
"""Statuses from here on are faults of the engine."""
_MAX_READERS: Final = 2
"""Engines that may fail at one request."""
_BODIES_AT_ONCE: Final = 2
"""Largest bodies that one rollout holds at once."""


@dataclass(kw_only=True)
class Calls:
    """Makes the calls of all rollouts."""

    settings: Settings
    log: Log
    pool: EnginePool
    upstream: Upstream
    cache: ResponseCache
    side_calls: SideCalls
    """Patterns for the calls of all rollouts."""
    spending: Spending
    disconnects: DisconnectWatcher = field(default_factory=DisconnectWatcher)
    _name: str = field(default_factory=lambda: new_id()[-8:])
    """Distinguishes ids of this process from those of others; minting one per call would cost a system call."""
    _numbers: Iterator[int] = field(default_factory=count)

    async def answer(
        self, rollout: LiveRollout, client: Client, dialect: Dialect, *, is_operator: bool
    ) -> web.Response | None:
        """Answer a question to the model.

        Args:
            rollout: it asks.
            client: asks for it.
            dialect: how it is put.
            is_operator: whether the operator's key opened the rollout; others let no engine fetch media.

        Returns: the answer; None: the client was sent it piece by piece.

        Raises: AgentLayerError, RefusedError: no answer; the call, if it began, is recorded with its end.
        """
        with self.disconnects.watch(client) as watched:
            if not is_large(size := client.size_bytes):
                return await self._answer(watched, await self._parse(rollout, client, dialect, is_operator=is_operator))
            async with self.hold_body(rollout, size) as held:
                parsed = await self._parse(rollout, client, dialect, is_operator=is_operator)
                held.shrink(parsed.size_bytes)
                return await self._answer(watched, parsed)

    def hold_body(self, rollout: LiveRollout, num_bytes: int) -> AbstractAsyncContextManager[HeldBytes]:
        """Hold the bytes of a large request inside the block; see ``BodyQuota.hold``."""
        return rollout.bodies.hold(num_bytes, self.max_held_bytes, self.settings.request_seconds)

    @property
    def max_held_bytes(self) -> int:
        """Bytes of large requests that one rollout holds at once."""
        return self.settings.max_body_bytes * _BODIES_AT_ONCE

    async def _parse(self, rollout: LiveRollout, client: Client, dialect: Dialect, *, is_operator: bool) -> ParsedCall:
        body = await client.read()
        return await in_background(
            len(body), lambda: self._read_call(rollout, client, dialect, body, is_operator=is_operator)
        )

    def _read_call(
        self, rollout: LiveRollout, client: Client, dialect: Dialect, body: bytes, *, is_operator: bool
    ) -> ParsedCall:
        headers, source = client.headers, self.read_question(rollout, dialect, body, is_operator=is_operator)
        caller = self._judge(rollout, source, headers)
        sampling_policy = self._choose_policy(rollout, caller)
        request = self._arrange(rollout, source, sampling_policy)
        prompt = rollout.inspect_prompt(request, with_reasoning=self._restores_reasoning(caller))
        request = prompt.request
        most = client.max_messages
        if len(request.messages) > most:  # the gateway remembers a conversation: what continues it may be short
            raise BadInputError(
                f"{client.method} {client.path}: expected at most {most} messages, those that it continues included,"
                f" found {len(request.messages)}; begin another conversation, or raise AGENT_LAYER_MAX_MESSAGES"
            )
        digest = hash((client.path, prompt.digest))
        return ParsedCall(
            rollout=rollout,
            source=source,
            request=request,
            prompt=prompt,
            retry_key=retry_key(headers, digest, caller.agent, is_streamed=request.is_streamed),
            caller=caller,
            headers=headers,
            dialect=dialect,
            size_bytes=max(len(body), memoryview(request.pieces["messages"]).nbytes),
            sampling_policy=sampling_policy,
        )

    def _judge(self, rollout: LiveRollout, source: ChatRequest, headers: Mapping[str, str]) -> Caller:
        rules = [rollout.terms.side_calls, self.side_calls]
        caller = judge_caller(headers, source, rules, is_aux_model=self.pool.is_aux_model(source))
        external = self.pool.find_external(source)
        is_judge = external is not None and not external.is_policy
        return Caller(caller.agent, "aux", caller.reason) if is_judge else caller

    def _choose_policy(self, rollout: LiveRollout, caller: Caller) -> SamplingPolicy | None:
        return choose_sampling_policy(rollout, caller, self.settings.unreproducible_sampling)

    def _restores_reasoning(self, caller: Caller) -> bool:
        """Whether reasoning that an agent dropped is put back: a judge reads no more than it is shown."""
        return caller.role != "aux" and self.settings.dropped_reasoning == "restore"

    def _arrange(self, rollout: LiveRollout, source: ChatRequest, policy: SamplingPolicy | None) -> ChatRequest:
        """Return a request as an engine takes it; that for an external model stays."""
        if self.pool.find_external(source) is not None or source.endpoint != CHAT:
            return source
        if policy != "neutralise":
            return arrange(source)
        sampling = source.sampling | rollout.fixed_sampling(source)
        return arrange(source, describe_form(sampling, with_tools=source.has_tools))

    def read_question(self, rollout: LiveRollout, dialect: Dialect, body: bytes, *, is_operator: bool) -> ChatRequest:
        """Read a body. Raises: BadInputError, RefusedError: it cannot be asked, or its media lie elsewhere."""
        mended = mend_surrogates(body)
        source = dialect.read(mended, rollout.history.answers.memory)
        if mended != body:
            source = msgspec.structs.replace(source, not_applied=[*source.not_applied, "lone_surrogates"])
        if self.settings.hosted_tools == "refuse":
            refuse_hosted(source)
        if not is_operator:
            shown = [one for one, facts in zip(source.messages, source.facts, strict=True) if facts.has_parts]
            check_media(shown, self.settings.allowed_media, f"rollout {rollout.trajectory_id}")
        return source

    async def _answer(self, watched: WatchedClient, parsed: ParsedCall) -> web.Response | None:
        rollout, client, key = parsed.rollout, watched.client, parsed.retry_key
        earlier = await rollout.history.calls.join(key)
        if earlier and earlier.is_good:
            if client.is_gone:
                rollout.history.calls.return_undelivered(key, earlier)
            return repeat_response(earlier, parsed.request)
        rollout.check_may_call(earlier and earlier.question_id, is_aux=parsed.is_aux)
        minted_id = f"{self._name}-{next(self._numbers)}"
        entry = watched.call = rollout.history.calls.add(key, minted_id, key.agent, earlier)
        entry.has_lost_client = lambda: client.is_gone
        call = ModelCall(parsed=parsed, entry=entry, log=self.log)
        try:
            with rollout.lease.waits.running():
                external = self.pool.find_external(parsed.request)
                async with asyncio.timeout(rollout.budget.seconds_left()), self.spending.reserve(call, external):
                    return await self._run(call, client)
        except (TimeoutError, asyncio.CancelledError) as stop:
            _refuse_stopped(call, client, stop)
            raise
        finally:
            entry.has_lost_client = None  # it holds the request
            entry.done.set()

    async def count_tokens(self, rollout: LiveRollout, source: ChatRequest, headers: Mapping[str, str]) -> int:
        """Let an engine count the tokens of a prompt.

        Raises: EngineError: it cannot. RefusedError: no engine reads the prompt, or the rollout is closed.
        """
        rollout.check_is_open()
        if (external := self.pool.find_external(source)) is not None:
            raise RefusedError(
                400,
                "no_token_count",
                f"model {external.model!r}: another party serves it, and nothing here can count its tokens; estimate"
                " them, or ask without a count",
            )
        engine = await self.pool.acquire(rollout)
        try:
            caller = self._judge(rollout, source, headers)
            return await self._count_at(engine, self._arrange(rollout, source, self._choose_policy(rollout, caller)))
        finally:
            self.pool.release(engine)

    async def _run(self, call: ModelCall, client: Client) -> web.Response | None:
        if not self.log.has_room():
            await self._wait_for_room()
        target = await self._find_target(call)
        call.hold_place(target)
        try:
            if call.rollout.budget.limits.context_tokens is not None:
                await self._count_prompt(call, target)
            call.begin(await in_background(call.parsed.size_bytes, lambda: call.prepare(target)))
            with call.rollout.running_task():  # from here on, closing the rollout cancels the call
                async with AsyncExitStack() as upstream:
                    delivery = await self._deliver(call, client, upstream)
                    response = await delivery.finish()
                if call.entry.is_good:
                    self.cache.keep(call.entry, delivery.body, delivery.content_type)
                    if delivery.is_delivered:
                        call.rollout.history.calls.record_delivery(call.parsed.retry_key, call.entry)
                return response
        finally:
            self._release(call)

    async def _count_prompt(self, call: ModelCall, target: Engine | ExternalModel) -> None:
        """Count the tokens of a prompt of the policy, where the engine can: the task limits its context.

        Raises: RefusedError: there is no room for an answer.
        """
        rollout, parsed = call.rollout, call.parsed
        if isinstance(target, ExternalModel) or parsed.is_aux:
            return
        try:
            call.num_prompt = await self._count_at(target, parsed.request)
        except EngineError:  # it has no /tokenize; then its own context is the limit
            return
        rollout.check_fits(call.num_prompt)

    async def _count_at(self, engine: Engine, request: ChatRequest) -> int:
        body, headers = tokenize_body(request, engine.model), self.pool.make_headers(engine.url)
        async with self.upstream.post(f"{engine.url}/tokenize", body, headers) as reply:
            return read_count(engine.url, reply.status, await reply.read())

    async def _deliver(self, call: ModelCall, client: Client, upstream: AsyncExitStack) -> Delivery:
        """Bring an answer to the client up to its last bytes, and record how the call ended, whatever stops it."""
        ending = CUT_OFF
        try:
            delivery = await self._exchange(call, client, upstream)
            try:
                await delivery.relay()
            finally:
                ending = delivery.ending()
        except EngineError as error:
            ending = Ending("error", error=str(error), spends_turn=False)
            raise
        finally:
            call.end(ending)
        return delivery

    async def _exchange(self, call: ModelCall, client: Client, upstream: AsyncExitStack) -> Delivery:
        """Ask one engine after the other, until one begins to answer.

        What fails at two that read it is the request's fault: a third is spared.

        Raises: EngineError: the last engine failed, and no other is healthy.
        """
        while True:
            try:
                reply = await read_beginning(await self._ask(call, upstream))
                if reply.status in BAD_REQUEST:
                    refused = await reply.read()
                    if not await self._adapt(call, reply.status, refused):
                        return refuse(call, client, reply.status, refused)
                    await upstream.aclose()
                    continue
                call.tries.num_readers += reply.status >= _OWN_FAULT
                if reply.status < _OWN_FAULT or not self._report_failure(call):
                    return await read_reply(call, client, reply)
            except EngineError as error:
                call.tries.num_readers += was_reached(error)
                if not self._report_failure(call):
                    raise
            await upstream.aclose()
            other = await self._find_target(call)
            self._release(call)
            call.move(other)

    async def _adapt(self, call: ModelCall, status: int, refused: bytes) -> bool:
        """Change what an engine refused, so that it is asked again; False: nothing of it can be changed."""
        target = call.route.engine or self.pool.find_external(call.parsed.request)
        if target is not None and call.leave_out(target, find_refused_options(status, refused)):
            return True
        return call.asks_length and is_context_full(status, refused) and await self._fit(call)

    async def _fit(self, call: ModelCall) -> bool:
        """Lower the length that a call asks for to what its engine has room for; False: its prompt does not fit.

        Where the engine tells neither its context nor the tokens of a prompt, or not the truth, it decides by itself.
        """
        tokens: int | None = None
        engine = call.route.engine
        if call.tries.room is None and engine is not None and (most := await self.pool.read_context_tokens(engine)):
            try:
                tokens = most - await self._count_at(engine, call.parsed.request)
            except EngineError:  # it has no /tokenize
                tokens = None
            if tokens is not None and tokens < 1:
                return False
        target = engine or self.pool.find_external(call.parsed.request)
        if target is not None:
            call.fit(target, Room(tokens))
        return target is not None

    async def _ask(self, call: ModelCall, upstream: AsyncExitStack) -> Reply:  # kept: raises what its caller answers
        """Raises: EngineError: it no longer takes the key that the registry has, which is not the agent's fault."""
        reply = await upstream.enter_async_context(self._post(call))
        if reply.status in _KEY_REFUSED and call.route.engine is not None:
            raise EngineError(f"engine {call.route.url}: it refuses the gateway's key ({reply.status}); ask again")
        return WholeReply(reply, call.parsed.request) if call.route.needs_whole_answer else reply

    def _post(self, call: ModelCall) -> AbstractAsyncContextManager[Reply]:
        """Send the request, in a way that survives a switch of weights where the settings ask for it."""
        if self.settings.switch_mode == "abort" and can_continue(call):
            return post_continued(call, self.upstream, self.pool)
        route = call.route
        headers = route.headers if route.engine is None else self.pool.make_headers(route.url)
        return self.upstream.post(f"{route.url}/v1/{call.parsed.request.endpoint}", route.express(), headers)

    async def _find_target(self, call: ModelCall) -> Engine | ExternalModel:
        external = self.pool.find_external(call.parsed.request)
        return external or await self.pool.acquire(call.rollout, frozenset(call.tries.failed))

    def _release(self, call: ModelCall) -> None:
        if call.held:
            self.pool.release(call.held)
            call.held = None

    def _report_failure(self, call: ModelCall) -> bool:
        """Take the engine out of rotation; whether a healthy one that was not asked yet may answer instead."""
        engine, tries = call.route.engine, call.tries
        if engine is None:
            return False
        tries.failed.add(engine.url)
        if tries.num_readers >= _MAX_READERS:
            return False  # and the engine stays: two do not fail at once
        return self.pool.report_failure(engine, call.rollout.started.run, tries.failed)

    async def _wait_for_room(self) -> None:  # kept: a step of the path that ``_run`` shows
        """Wait until the log is below its quota.

        Raises: BackPressureError: it stays full for ``log_wait_seconds``.
        """
        if not await wait_until(self.log.has_room, self.settings.log_wait_seconds):
            raise BackPressureError(
                f"gateway: its log {self.settings.log_dir} is over {self.settings.log_quota_bytes} bytes, because"
                " nothing could be shipped; look at shipper.log there, and whether Redis and the object store answer"
            )


def _refuse_stopped(call: ModelCall, client: Client, stop: BaseException) -> None:  # kept: its docstring promises
    """Explain to a client that still waits why its call was stopped.

    Raises: RefusedError: the rollout is closed, or its time is over. CancelledError: the client reads part of a stream
        already, which only a broken connection can end.
    """
    if isinstance(stop, TimeoutError):
        if call.has_sent:
            raise asyncio.CancelledError from None
        call.rollout.check_may_call(is_aux=call.parsed.is_aux)
    elif not client.is_gone and not call.has_sent:
        call.rollout.check_is_open()
