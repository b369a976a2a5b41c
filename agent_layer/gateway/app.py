"""The gateway as a web application: its object graph, its addresses, its background tasks."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing

from aiohttp import web
from redis import Redis

from agent_layer.engines import EngineRegistry
from agent_layer.errors import BadInputError
from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import BODY_BOUNDS
from agent_layer.gateway.calls.spending import Spending, read_cost_limit
from agent_layer.gateway.engines.pool import EnginePool, EngineWatcher, PolicyRegistrar
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.engine_routes import EngineRoutes
from agent_layer.gateway.http.errors import ErrorAnswers, as_json
from agent_layer.gateway.http.google_routes import GoogleRoutes
from agent_layer.gateway.http.metrics import backlog_bytes, metrics_text
from agent_layer.gateway.http.model_routes import ModelRoutes
from agent_layer.gateway.http.peers import PeerProxy
from agent_layer.gateway.http.response_routes import ResponseRoutes
from agent_layer.gateway.http.rollout_routes import RolloutRoutes
from agent_layer.gateway.http.server import COUNTERS
from agent_layer.gateway.rollouts.callers import read_side_calls
from agent_layer.gateway.rollouts.counters import Counters, CountingLog, SettlingLog
from agent_layer.gateway.rollouts.expiry import abort_all, reap_expired
from agent_layer.gateway.rollouts.finalize import Finalizer
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.resume import AttemptResumption
from agent_layer.gateway.rollouts.retries import ResponseCache
from agent_layer.gateway.upstream.client import Upstream
from agent_layer.infra import Keys
from agent_layer.recorder import KeyScrubber
from agent_layer.schema import BodyBounds, new_id
from agent_layer.settings import Settings
from agent_layer.state import record_loss, record_operator_key

__all__ = ["Gateway", "build_app"]

log = logging.getLogger(__name__)


def build_app(
    settings: Settings,
    redis: Redis,
    log: SettlingLog,
    peers: PeerProxy | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> web.Application:
    """Build the gateway.

    Args:
        settings: ``api_key`` must be set: it is the operator's.
        redis: holds the registry, on which the engines must be registered.
        log: where records go.
        peers: the processes of this machine, when there are several.
        clock: seconds from any beginning; decides when keys, budgets and unused rollouts expire.

    Raises: BadInputError: there is no operator key.
    """
    return Gateway(settings, redis, log, peers, clock=clock).app()


class Gateway:
    """All parts of a gateway, connected; nothing runs before the application starts."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        log: SettlingLog,
        peers: PeerProxy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not settings.api_key:
            raise BadInputError("gateway: expected an operator key, found none; set AGENT_LAYER_API_KEY")
        self._settings = settings
        self._peers = peers
        self._counters = Counters()
        counting_log = CountingLog(log, self._counters)
        keys, cache = Keys(settings.namespace), ResponseCache()
        self._rollouts = RolloutRegistry(
            settings.idle_seconds, self._counters, clock, paused_seconds=settings.paused_seconds
        )
        operator_keys = [settings.api_key, *settings.former_keys]
        self._access = Access(operator_keys, self._rollouts, self._counters, settings.metrics_key)
        mask_keys = KeyScrubber(settings.secrets).scrub_text
        self._errors = ErrorAnswers(access=self._access, counters=self._counters, mask_keys=mask_keys)
        registry = EngineRegistry(redis, keys, settings.gateway_seconds)
        policies = PolicyRegistrar(redis, keys, counting_log)
        self._engines = EngineWatcher(  # real time: its limits are those of keys in Redis
            registry, new_id(), settings, on_loss=lambda: self._announce_again(redis, keys, policies)
        )
        self._upstream = Upstream(settings.connect_seconds, settings.request_seconds)
        self._calls = Calls(
            settings=settings,
            log=counting_log,
            pool=EnginePool(settings, self._engines, policies),
            upstream=self._upstream,
            cache=cache,
            side_calls=read_side_calls(settings.side_calls),
            spending=Spending(read_cost_limit(settings.cost_limit)),
        )
        self._finalizer = Finalizer(
            settings=settings, rollouts=self._rollouts, log=counting_log, redis=redis, keys=keys, cache=cache
        )
        self._resumption = AttemptResumption(
            rollouts=self._rollouts, finalizer=self._finalizer, counters=self._counters
        )
        self._model_routes = ModelRoutes(access=self._access, calls=self._calls, model_name=self._model_name)
        self._engine_routes = EngineRoutes(settings, redis, self._engines, self._access.check_operator)
        self._rollout_routes = RolloutRoutes(
            settings=settings,
            access=self._access,
            rollouts=self._rollouts,
            finalizer=self._finalizer,
            resumption=self._resumption,
            counters=self._counters,
            model_name=self._model_name,
            peers=peers,
        )

    def _announce_again(self, redis: Redis, keys: Keys, policies: PolicyRegistrar) -> None:
        """Write again, after Redis lost data, what this process has written; called in a thread."""
        policies.restore()
        record_operator_key(redis, keys, self._settings.api_key or "")
        record_loss(redis, keys)

    def app(self) -> web.Application:
        """Connect addresses with their handlers."""
        forwarding = [self._peers.forward] if self._peers else []
        middlewares = [self._errors.answer, *forwarding]
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=middlewares)
        app[COUNTERS] = self._counters
        app[BODY_BOUNDS] = BodyBounds(
            values=self._settings.max_body_values,
            depth=self._settings.max_body_depth,
            messages=self._settings.max_messages,
        )
        app.cleanup_ctx.append(self._run_tasks)
        responses = ResponseRoutes(access=self._access, calls=self._calls, errors=self._errors)
        app.on_shutdown.append(responses.close_sockets)
        app.add_routes(
            [
                *self._model_routes.routes(),  # most requests: tried first
                *responses.routes(),
                *self._model_routes.refusals(),
                *GoogleRoutes(access=self._access, calls=self._calls, model_name=self._model_name).routes(),
                web.get("/health", self._get_health),
                web.get("/metrics", self._get_metrics),
                *self._rollout_routes.routes(),
                *self._engine_routes.routes(),
            ]
        )
        return app

    async def _run_tasks(self, _: web.Application) -> AsyncGenerator[None]:
        with closing(self._upstream):
            await self._engines.refresh()
            names: dict[str, Callable[[], Awaitable[None]]] = {
                "engine watcher": self._engines.run,
                "disconnect watcher": self._calls.disconnects.run,
                "rollout reaper": lambda: reap_expired(self._rollouts, self._finalizer, self._resumption),
            }
            if self._peers:
                names["disconnect watcher of peers"] = self._peers.disconnects.run
            tasks = [asyncio.create_task(keep_running(name, run)) for name, run in names.items()]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await abort_all(self._rollouts, self._finalizer)
            await self._engines.close()

    async def _get_health(self, _: web.Request) -> web.Response:
        engines = {engine.url: f"{engine.state} {engine.run}:{engine.version}" for engine in self._engines.engines}
        fault = None if self._settings.policy_url else self._engines.find_fault()
        return as_json({"status": fault or "ok", "engines": engines}, 503 if fault else 200)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        self._access.check_scraper(request)
        backlog = await asyncio.to_thread(backlog_bytes, self._settings.log_dir)
        return web.Response(text=metrics_text(self._counters, self._rollouts, self._engines, backlog))

    def _model_name(self) -> str:
        """Name of the policy's model, for agents that need one; any name that they send is accepted."""
        models = [engine.model for engine in self._engines.engines]
        return self._settings.model or (models[0] if models else "policy")


async def keep_running(name: str, run: Callable[[], Awaitable[None]], pause_seconds: float = 1.0) -> None:
    """Run a background task, again after each failure; the log says why it failed.

    Without the engine watcher no call is sent, without the reaper no rollout expires.
    """
    while True:
        try:
            return await run()
        except Exception as error:  # whatever failed, such as a descriptor that was refused, may pass
            log.critical("%s failed, it begins again", name, exc_info=error)
        await asyncio.sleep(pause_seconds)
