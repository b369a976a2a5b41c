"""Engine pool: gives each call a place at an engine that serves its run, or names the external model it asks for.

``EngineWatcher`` is the gateway's side of a switch of weights. It sends calls to serving engines only, and reports when
an engine that leaves the service has no call in flight. It trusts what it read of the registry for a little less than
``gateway_seconds``: if Redis is away for longer, or this process was stopped, calls wait. So no call of a gateway that
a trainer stopped waiting for can reach an engine.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.engines import Engine, EngineRegistry, get_policy, newest_number, register_policy, restore_policies
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.engines.admission import Admission, adapt_limit
from agent_layer.gateway.engines.health import check_engines
from agent_layer.gateway.engines.models import ExternalModel, ModelNames, read_model_names
from agent_layer.gateway.engines.preemption import Preemptions
from agent_layer.gateway.engines.rotation import Rotation
from agent_layer.gateway.rollouts.log_protocol import Log
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.infra import Keys
from agent_layer.schema import PolicyVersion
from agent_layer.settings import Settings

_ANNOUNCEMENTS_PER_TTL = 5
"""How often within ``gateway_seconds`` the gateway announces itself."""
_REGISTRY_TRUST = 0.8
"""Part of ``gateway_seconds`` for which a reading of the registry is good."""

log = logging.getLogger(__name__)


class EnginePool:
    """Where calls go.

    Args:
        settings: name the external models, and where LiteLLM serves them.
        engines: all engines.
        policies: registers each version before any token is sampled by it.
    """

    def __init__(self, settings: Settings, engines: "EngineWatcher", policies: "PolicyRegistrar") -> None:
        self._settings = settings
        self._engines = engines
        self._policies = policies
        self._names: ModelNames = read_model_names(settings.models)
        self._has_external = self._names.needs_provider
        self._policy = _external_policy(settings)
        self._contexts: dict[str, tuple[int, int | None]] = {}
        """By address of an engine: its epoch, and its longest context then."""

    def find_external(self, request: ChatRequest) -> ExternalModel | None:
        """Find the external model that a request names; None: it asks for the policy, and engines serve it.

        Raises: BadInputError: no LiteLLM server is set up.
        """
        model = self._names.provider_model(request.model) if self._has_external else None
        if model is None:
            return self._policy
        if (url := self._settings.provider_url) is None:
            raise BadInputError(
                f"model {model!r}: expected a LiteLLM server for it, found none; 'agent-layer serve' and 'up' start"
                " one, or set AGENT_LAYER_PROVIDER_URL"
            )
        return ExternalModel(url=url.rstrip("/").removesuffix("/v1"), model=model, api_key=self._settings.provider_key)

    def is_aux_model(self, request: ChatRequest) -> bool:
        """Whether a request names a model whose answers the policy does not learn from."""
        return self._names.is_aux(request.model)

    async def acquire(self, rollout: LiveRollout, without: frozenset[str] = frozenset()) -> Engine:
        """Take a place at an engine of the policy. ``release`` must follow.

        Args:
            rollout: it calls.
            without: addresses of engines that shall not answer.

        Raises: EngineError: no engine served within ``request_seconds``.
        """
        run = rollout.started.run
        engine = await self._engines.acquire(run, rollout.history.engine, self._settings.request_seconds, without)
        try:
            await self._policies.ensure(run, engine)
        except BaseException:
            self._engines.release(engine)
            raise
        rollout.history.engine = engine.url
        return engine

    def release(self, engine: Engine) -> None:
        """Free a place."""
        self._engines.release(engine)

    def make_headers(self, url: str) -> Mapping[str, str]:
        """Return what a request to an engine must carry: its key, where it asks for one."""
        return self._engines.rotation.make_headers(url)

    async def read_context_tokens(self, engine: Engine) -> int | None:
        """Return how many tokens a prompt and its answer may have together; None: the engine does not say."""
        known = self._contexts.get(engine.url)
        if known is None or known[0] != engine.epoch:  # it may have started again since, with another length
            try:
                found = await self._engines.read_context_tokens(engine)
            except (EngineError, UnreachableError, RedisError) as error:
                log.warning("length of context unknown engine=%s error=%s", engine.url, error)
                return None
            known = self._contexts[engine.url] = engine.epoch, found
        return known[1]

    def report_failure(self, engine: Engine, run: str, failed: Collection[str]) -> bool:
        """Record that an engine failed a call of this run; whether a healthy one, none of the failed, could answer."""
        self._engines.rotation.record_failure(engine.url)
        return self._engines.rotation.has_other(run, failed)

    @property
    def preemptions(self) -> Preemptions:
        """Requests that end early when their engine leaves the service."""
        return self._engines.preemptions


def _external_policy(settings: Settings) -> ExternalModel | None:
    """Return the model of another party that answers as the policy; None: engines do.

    Raises: BadInputError: its server is named, but not its model.
    """
    if settings.policy_url is None:
        return None
    if settings.model is None:
        raise BadInputError(
            f"setting policy_url: expected the name of a model at {settings.policy_url}, found none; set"
            " AGENT_LAYER_MODEL"
        )
    url = settings.policy_url.rstrip("/").removesuffix("/v1")
    return ExternalModel(url=url, model=settings.model, api_key=settings.policy_key, is_policy=True)


class EngineWatcher:
    """Assigns calls to engines, as the registry allows, and reports drained engines to the registry.

    Args:
        registry: where engines and gateways meet.
        gateway_id: of this process.
        settings: say which engines are used, and how often they are polled.
        clock: seconds from any beginning.
        on_loss: called in a thread when Redis has lost data: what this process registered, it registers again.
    """

    def __init__(
        self,
        registry: EngineRegistry,
        gateway_id: str,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        on_loss: Callable[[], object] = lambda: None,
    ) -> None:
        limit = adapt_limit if settings.adaptive_concurrency else None
        self.rotation = Rotation(settings.run, settings.engine_urls, settings.max_staleness, limit)
        self.admission = Admission(self.rotation, self._is_current)
        self.preemptions = Preemptions()
        self._registry = registry
        self._gateway_id = gateway_id
        self._settings = settings
        self._clock = clock
        self._on_loss = on_loss
        self._seen_at = float("-inf")
        self._reported_epochs: dict[str, int] = {}
        self._reported_drains: dict[str, int] = {}
        self._drained = asyncio.Event()
        self._reading = asyncio.Lock()
        """Readings of the registry take turns: no older one replaces a newer one."""

    async def run(self) -> None:
        """Follow the registry until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._report_drained())
            limits = self._settings.engine_poll_seconds, self._settings.connect_seconds
            tasks.create_task(check_engines(self.rotation, *limits, self._report_end, self.admission.admit))

    async def close(self) -> None:
        """Remove this gateway from the registry."""
        with suppress(RedisError):
            await asyncio.to_thread(self._registry.remove_gateway, self._gateway_id)

    async def refresh(self) -> None:
        """Announce this gateway, then read the registry: in this order no trainer misses it."""
        async with self._reading:
            began = self._clock()
            engines, newest, access_keys = await asyncio.to_thread(self._show_and_read)
            self._reported_epochs.clear()  # once more: what Redis forgot, trainers would wait for
            self._reported_drains.clear()
            self.rotation.update(engines, newest, access_keys)
            self.preemptions.apply(engines)
            self._seen_at = began
            self.admission.admit()
            self._drained.set()

    async def acquire(self, run: str, kept: str | None, seconds: float, without: frozenset[str]) -> Engine:
        """Take a place at an engine; see ``Admission``. ``release`` must follow."""
        return await self.admission.acquire(run, kept, seconds, without)

    async def read_context_tokens(self, engine: Engine) -> int | None:
        """See ``EngineControl``. Raises: EngineError, UnreachableError, RedisError: it is not known."""
        seconds = self._settings.connect_seconds
        return await asyncio.to_thread(lambda: self._registry.control(engine.url, seconds).read_context_tokens())

    def release(self, engine: Engine) -> None:
        """Free a place."""
        self.admission.release(engine)
        if not self.rotation.get_load(engine.url).in_flight:
            self._drained.set()

    @property
    def engines(self) -> list[Engine]:
        """Engines that may be sent to when they serve."""
        return self.rotation.engines

    def find_fault(self) -> str | None:
        """Return why no engine can answer a call; None: engines serve, or a switch of weights holds their calls."""
        if not self._is_current():
            return "the registry of engines is not known: Redis does not answer"
        used = [engine for engine in self.engines if not engine.is_drained]
        if not used:
            return "no engine is registered, or all are drained; 'agent-layer engines join' adds one"
        if not any(self.rotation.get_load(engine.url).is_well for engine in used):
            return f"no engine answers: {', '.join(engine.url for engine in used)}"
        return None

    def _is_current(self) -> bool:
        return self._clock() - self._seen_at <= _REGISTRY_TRUST * self._registry.gateway_seconds

    def _show_and_read(self) -> tuple[list[Engine], dict[str, int], dict[str, str]]:
        has_lost = self._registry.renew_gateway(self._gateway_id)
        engines = self._registry.engines()
        if lost := self._registry.restore_lost(engines):
            log.warning("engines are registered again, redis lost them urls=%s", " ".join(lost))
            engines = self._registry.engines()
        if has_lost:
            log.warning("redis lost data that this gateway had written")
            self._on_loss()
        runs = {engine.run for engine in engines} if self.rotation.has_limit else set[str]()
        versions = {run: newest_number(self._registry.redis, self._registry.keys, run) for run in runs}
        newest = {run: number for run, number in versions.items() if number is not None}
        return engines, newest, self._registry.access_keys()  # last: an engine's key comes with its entry

    async def _follow(self) -> None:
        beat = self._registry.gateway_seconds / _ANNOUNCEMENTS_PER_TTL
        after: str | None = None
        while True:
            try:
                if after is None:
                    after = await asyncio.to_thread(self._registry.last_event)
                await self.refresh()
                after = await asyncio.to_thread(self._registry.wait_event, after, beat)
            except RedisError as error:
                log.warning("engine registry unreachable: %s", error)
                await asyncio.sleep(beat)

    async def _report_drained(self) -> None:
        while True:
            await self._drained.wait()
            self._drained.clear()
            for engine in self.rotation.all_engines:
                if not self.rotation.get_load(engine.url).in_flight:
                    await self._acknowledge(engine)

    async def _report_end(self, url: str) -> None:
        """Record that no server listens at an address: what starts there next is not what the registry knows."""
        engine = next((engine for engine in self.rotation.engines if engine.url == url), None)
        if engine is None or engine.state != "serving":
            return
        try:
            await asyncio.to_thread(self._registry.mark_ended, engine)
        except RedisError as error:
            log.warning("engine registry unreachable: %s", error)  # it is asked again

    async def _acknowledge(self, engine: Engine) -> None:
        """Report that no call is in flight at an engine that gets none."""
        epoch, drains = engine.epoch, engine.drains
        try:
            if engine.state != "serving" and self._reported_epochs.get(engine.url, -1) < epoch:
                await asyncio.to_thread(self._registry.mark_idle, engine.url, self._gateway_id, epoch)
                self._reported_epochs[engine.url] = epoch
            if engine.is_drained and self._reported_drains.get(engine.url, -1) < drains:
                await asyncio.to_thread(self._registry.mark_quiet, engine.url, self._gateway_id, drains)
                self._reported_drains[engine.url] = drains
        except RedisError as error:
            log.warning("engine registry unreachable: %s", error)  # the next refresh wakes this again


class PolicyRegistrar:
    """Registers policy versions before any token is sampled by them.

    A trainer registers its own versions. Version 0 of a run has no other author.
    """

    def __init__(self, redis: Redis, keys: Keys, log: Log) -> None:
        self._redis = redis
        self._keys = keys
        self._log = log
        self._known: dict[tuple[str, int], PolicyVersion] = {}

    async def ensure(self, run: str, engine: Engine) -> None:
        """Register for this run what the engine serves, unless it is known already.

        Raises: EngineError: the run has other weights under this number, and the engine is not the run's own.
        """
        if (run, engine.version) in self._known:
            return
        policy = PolicyVersion(run=run, number=engine.version, location=engine.location, created_at=time.time())
        self._known[run, engine.version] = await asyncio.to_thread(self._register, policy, engine)

    def restore(self) -> None:
        """Register again, after Redis lost data, what was registered."""
        restore_policies(self._redis, self._keys, list(self._known.values()))

    def _register(self, policy: PolicyVersion, engine: Engine) -> PolicyVersion:
        register_policy(self._redis, self._keys, policy, self._log.append)
        known = get_policy(self._redis, self._keys, policy.run, policy.number)
        if known and engine.run != policy.run and known.location != engine.location:
            raise EngineError(
                f"engine {engine.url}: expected weights {known.location} as version {policy.number} of run"
                f" {policy.run}, found {engine.location} of run {engine.run}; start an engine for run {policy.run}"
            )
        return known or policy
