"""This file holds where calls go: to an engine that serves the rollout's run, or to a provider by the model's name.

This file holds which engines answer calls of which run right now, and how busy each of them is.

A run's calls go to the engines that are registered for it. A run that has none is answered by the engines of the
gateway's own run: so evaluations and trials need no engine of their own, and a trained run never gets foreign
weights.

This file holds the gateway's side of a switch of weights: send to serving engines only, say when none is in
flight.

The gateway may act on what the board said for a little less than ``gateway_seconds``; if Redis is away for
longer, or
this process was stopped, calls wait. So a trainer that no longer waits for this gateway need not fear its calls.

This file holds the registration of policy versions before anything is sampled by them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.engines import Engine, EngineBoard, get_policy, newest_number, register_policy
from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.dialects import ChatRequest
from agent_layer.gateway.engines.health import check_engines
from agent_layer.gateway.engines.models import ModelNames, Provider, read_model_names
from agent_layer.gateway.engines.preemption import Preemptions
from agent_layer.gateway.engines.rotation import Rotation
from agent_layer.gateway.rollouts import LiveRollout, Log
from agent_layer.infra.redis import Keys
from agent_layer.schema import PolicyVersion
from agent_layer.settings import Settings

_BEATS = 5
"""How often within ``gateway_seconds`` the gateway shows itself."""
_MARGIN = 0.8
"""Part of ``gateway_seconds`` for which a look at the board is good."""

log = logging.getLogger(__name__)


class EngineWatcher:
    """Gives calls their places at engines, as the board allows, and keeps the board told."""

    def __init__(
        self, board: EngineBoard, gateway_id: str, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rotation = Rotation(settings.run, settings.engine_urls, settings.max_staleness)
        self.cuts = Preemptions()
        self._board = board
        self._gateway_id = gateway_id
        self._settings = settings
        self._clock = clock
        self._seen_at = float("-inf")
        self._said_idle: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    async def run(self) -> None:
        """Follow the board until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._say_idle())
            limits = self._settings.engine_poll_seconds, self._settings.connect_seconds
            tasks.create_task(check_engines(self.rotation, *limits, self._report_end))

    async def close(self) -> None:
        """Tell the board that this gateway ended."""
        with suppress(RedisError):
            await asyncio.to_thread(self._board.hide_gateway, self._gateway_id)

    async def look(self) -> None:
        """Show this gateway, then read the board: in this order no trainer misses it."""
        began = self._clock()
        engines, newest = await asyncio.to_thread(self._show_and_read)
        self.rotation.update(engines, newest)
        self.cuts.apply(engines)
        self._seen_at = began
        self._changed.set()
        self._changed = asyncio.Event()
        self._drained.set()

    async def take(self, run: str, kept: str | None, seconds: float) -> Engine:
        """Take a place at an engine; give it back with ``give``.

        Args:
            run: of the rollout that calls.
            kept: address of the engine that answered the rollout before; None: none did.
            seconds: longest wait.

        Raises: EngineError: none served within so many seconds.
        """
        deadline = self._clock() + seconds
        while (engine := self._choose(run, kept)) is None:
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                raise EngineError(self.rotation.explain_none(run, seconds)) from None
        self.rotation.load_of(engine.url).in_flight += 1
        return engine

    def give(self, engine: Engine) -> None:
        """Give a place back."""
        load = self.rotation.load_of(engine.url)
        load.in_flight -= 1
        if not load.in_flight:
            self._drained.set()

    def fails(self, engine: Engine, run: str) -> bool:
        """Note that an engine failed a call of this run; whether another that is well could answer it."""
        self.rotation.record_failure(engine.url)
        return self.rotation.has_other(engine, run)

    @property
    def engines(self) -> list[Engine]:
        """Engines that may be sent to when they serve."""
        return self.rotation.engines

    def _choose(self, run: str, kept: str | None) -> Engine | None:
        if self._clock() - self._seen_at > _MARGIN * self._board.gateway_seconds:
            return None
        return self.rotation.choose(run, kept)

    def _show_and_read(self) -> tuple[list[Engine], dict[str, int]]:
        self._board.show_gateway(self._gateway_id)
        engines = self._board.engines()
        return engines, self._newest_of({engine.run for engine in engines} if self.rotation.has_limit else set())

    def _newest_of(self, runs: set[str]) -> dict[str, int]:
        found = {run: newest_number(self._board.redis, self._board.keys, run) for run in runs}
        return {run: number for run, number in found.items() if number is not None}

    async def _follow(self) -> None:
        beat = self._board.gateway_seconds / _BEATS
        after: str | None = None
        while True:
            try:
                if after is None:
                    after = await asyncio.to_thread(self._board.last_event)
                await self.look()
                after = await asyncio.to_thread(self._board.wait_event, after, beat)
            except RedisError as error:
                log.warning("board unreachable: %s", error)
                await asyncio.sleep(beat)

    async def _say_idle(self) -> None:
        while True:
            await self._drained.wait()
            self._drained.clear()
            for engine in self.rotation.all_engines:
                if engine.state == "serving" or self.rotation.load_of(engine.url).in_flight:
                    continue
                if self._said_idle.get(engine.url, -1) < engine.epoch:
                    await self._acknowledge(engine)

    async def _report_end(self, url: str) -> None:
        """Nobody listens there: whatever is started there next is not what the board knows."""
        engine = next((engine for engine in self.rotation.engines if engine.url == url), None)
        if engine is None or engine.state != "serving":
            return
        try:
            await asyncio.to_thread(self._board.note_end, engine)
        except RedisError as error:
            log.warning("board unreachable: %s", error)  # it is asked again

    async def _acknowledge(self, engine: Engine) -> None:
        try:
            await asyncio.to_thread(self._board.say_idle, engine.url, self._gateway_id, engine.epoch)
        except RedisError as error:
            log.warning("board unreachable: %s", error)  # the next look wakes this again
        else:
            self._said_idle[engine.url] = engine.epoch


class PolicyRegistrar:
    """Versions that are known to be registered. A trainer registers its own; version 0 of a run has no other author."""

    def __init__(self, redis: Redis, keys: Keys, log: Log) -> None:
        self._redis = redis
        self._keys = keys
        self._log = log
        self._known: set[tuple[str, int]] = set()

    async def ensure(self, run: str, engine: Engine) -> None:
        """Register for this run what the engine serves, unless somebody did.

        Raises: EngineError: the run has other weights under this number, and the engine is not the run's own.
        """
        if (run, engine.version) in self._known:
            return
        policy = PolicyVersion(run=run, number=engine.version, location=engine.location, created_at=time.time())
        await asyncio.to_thread(self._register, policy, engine)
        self._known.add((run, engine.version))

    def _register(self, policy: PolicyVersion, engine: Engine) -> None:
        register_policy(self._redis, self._keys, policy, self._log.append)
        known = get_policy(self._redis, self._keys, policy.run, policy.number)
        if known and engine.run != policy.run and known.location != engine.location:
            raise EngineError(
                f"engine {engine.url}: expected weights {known.location} as version {policy.number} of run"
                f" {policy.run}, found {engine.location} of run {engine.run}; start an engine for run {policy.run}"
            )


class EnginePool:
    """Gives calls their places.

    Args:
        settings: name the models of providers, and where LiteLLM answers for them.
        engines: all engines.
        policies: told of each version before anything is sampled by it.
    """

    def __init__(self, settings: Settings, engines: EngineWatcher, policies: PolicyRegistrar) -> None:
        self._settings = settings
        self._engines = engines
        self._policies = policies
        self._names: ModelNames = read_model_names(settings.models)
        self._has_providers = self._names.needs_provider
        self._providers: dict[str, Provider] = {}

    async def take(self, rollout: LiveRollout, request: ChatRequest | None = None) -> Engine:
        """Take a place; give it back with ``give``.

        Args:
            rollout: that calls; it keeps its engine.
            request: names the model that the agent wants; None: the policy is meant.

        Raises: EngineError: no engine served within ``request_seconds``. BadInputError: no provider is set up.
        """
        if request and self._has_providers and (model := self._names.provider_model(request.model)):
            return self._provider_of(model)
        run = rollout.started.run
        engine = await self._engines.take(run, rollout.engine, self._settings.request_seconds)
        try:
            await self._policies.ensure(run, engine)
        except BaseException:
            self._engines.give(engine)
            raise
        rollout.engine = engine.url
        return engine

    @property
    def cuts(self) -> Preemptions:
        """What is asked of engines that may leave the service."""
        return self._engines.cuts

    def give(self, engine: Engine) -> None:
        """Give a place back."""
        if not isinstance(engine, Provider):
            self._engines.give(engine)

    def fails(self, engine: Engine, run: str) -> bool:
        """Note that an engine failed a call of this run; whether another that is well could answer it."""
        return not isinstance(engine, Provider) and self._engines.fails(engine, run)

    def _provider_of(self, model: str) -> Provider:
        if (url := self._settings.provider_url) is None:
            raise BadInputError(
                f"model {model!r}: expected a LiteLLM server for it, found none; 'agent-layer serve' and 'up' start"
                " one, or set AGENT_LAYER_PROVIDER_URL"
            )
        if model not in self._providers:
            self._providers[model] = Provider(
                url=url.rstrip("/").removesuffix("/v1"),
                run="",
                version=0,
                location=model,
                model=model,
                logprobs_mode="raw",
                state="serving",
                epoch=0,
                api_key=self._settings.provider_key,
            )
        return self._providers[model]
