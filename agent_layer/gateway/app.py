"""This file holds the gateway's addresses, and what it is made of while it serves."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import closing

from aiohttp import web
from redis import Redis

from agent_layer.engines import EngineBoard
from agent_layer.errors import BadInputError
from agent_layer.gateway.calls import Calls
from agent_layer.gateway.engines import EnginePool, EngineWatcher, PolicyRegistrar
from agent_layer.gateway.http import (
    Access,
    EngineRoutes,
    ModelRoutes,
    PeerProxy,
    RolloutRoutes,
    answer_errors,
    as_json,
    backlog_bytes,
    metrics_text,
)
from agent_layer.gateway.rollouts import (
    AttemptResumption,
    Counters,
    CountingLog,
    Finalizer,
    ResponseCache,
    RolloutRegistry,
    SettlingLog,
    abort_all,
    reap_expired,
)
from agent_layer.gateway.upstream import Upstream
from agent_layer.infra.redis import Keys
from agent_layer.schema import new_id
from agent_layer.settings import Settings

__all__ = ["Gateway", "build_app"]

log = logging.getLogger(__name__)


def build_app(settings: Settings, redis: Redis, log: SettlingLog, peers: PeerProxy | None = None) -> web.Application:
    """Give the gateway as a web application.

    Args:
        settings: ``api_key`` must be set: it is the operator's.
        redis: holds the board, on which the engines must be registered.
        log: where records go.
        peers: the processes of this machine, when there are several.
    """
    return Gateway(settings, redis, log, peers).app()


class Gateway:
    """Handlers by address; the work is done by RolloutRegistry, Calls and Finalizer."""

    def __init__(self, settings: Settings, redis: Redis, log: SettlingLog, peers: PeerProxy | None = None) -> None:
        if not settings.api_key:
            raise BadInputError("gateway: expected an operator key, found none; set AGENT_LAYER_API_KEY")
        self._settings = settings
        self._peers = peers
        self._counters = Counters()
        self._log = CountingLog(log, self._counters)
        keys = Keys(settings.namespace)
        board = EngineBoard(redis, keys, settings.gateway_seconds)
        self._rollouts = RolloutRegistry(settings.idle_seconds, self._counters, paused_seconds=settings.paused_seconds)
        self._access = Access([settings.api_key, *settings.former_keys], self._rollouts, self._counters)
        self._engines = EngineWatcher(board, new_id(), settings)
        self._engine_routes = EngineRoutes(settings, redis, self._engines, self._access.check_operator)
        self._pool = EnginePool(settings, self._engines, PolicyRegistrar(redis, keys, self._log))
        self._cache = ResponseCache()
        self._finalizer = Finalizer(
            settings=settings, rollouts=self._rollouts, log=self._log, redis=redis, keys=keys, shelf=self._cache
        )
        self._resumption = AttemptResumption(
            rollouts=self._rollouts, finalizer=self._finalizer, counters=self._counters
        )
        self._rollout_routes = RolloutRoutes(
            settings=settings,
            access=self._access,
            rollouts=self._rollouts,
            finalizer=self._finalizer,
            resumption=self._resumption,
            counters=self._counters,
            model_name=self._model,
            peers=peers,
        )
        self._calls: Calls

    def app(self) -> web.Application:
        """Put addresses and handlers together."""
        middlewares = [answer_errors, self._peers.forward] if self._peers else [answer_errors]
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=middlewares)
        app.cleanup_ctx.append(self._live)
        desk = ModelRoutes(access=self._access, calls=lambda: self._calls)
        app.add_routes(
            [
                *desk.routes(),  # most requests: first to be tried
                web.get("/health", self._say_health),
                web.get("/metrics", self._say_metrics),
                *self._rollout_routes.routes(),
                *self._engine_routes.routes(),
                web.get("/r/{trajectory_id}/v1/models", self._list_models),
                web.get("/v1/models", self._list_models),
            ]
        )
        return app

    async def _live(self, _: web.Application) -> AsyncGenerator[None]:
        upstream = Upstream(self._settings.connect_seconds, self._settings.request_seconds)
        self._calls = Calls(
            settings=self._settings, log=self._log, places=self._pool, upstream=upstream, shelf=self._cache
        )
        with closing(upstream):
            await self._engines.look()
            tasks = [
                asyncio.create_task(self._engines.run(), name="engine watch"),
                asyncio.create_task(self._calls.disconnects.run(), name="watch over clients"),
                asyncio.create_task(
                    reap_expired(self._rollouts, self._finalizer, self._resumption), name="tending of rollouts"
                ),
            ]
            if self._peers:
                tasks.append(asyncio.create_task(self._peers.disconnects.run(), name="watch over passed clients"))
            for task in tasks:
                task.add_done_callback(_report_death)
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await abort_all(self._rollouts, self._finalizer)
            await self._engines.close()

    async def _say_health(self, _: web.Request) -> web.Response:
        engines = {engine.url: f"{engine.state} {engine.run}:{engine.version}" for engine in self._engines.engines}
        return as_json({"status": "ok", "engines": engines})

    async def _say_metrics(self, request: web.Request) -> web.Response:
        self._access.check_local(request)
        backlog = await asyncio.to_thread(backlog_bytes, self._settings.log_dir)
        return web.Response(text=metrics_text(self._counters, self._rollouts, backlog))

    async def _list_models(self, request: web.Request) -> web.Response:
        if "trajectory_id" in request.match_info:
            self._access.enter(request)
        else:
            self._access.check_operator(request)
        return as_json({"object": "list", "data": [{"id": self._model(), "object": "model", "owned_by": "policy"}]})

    def _model(self) -> str:
        """Name of the policy's model, for agents that want one; any name is accepted of them."""
        models = [engine.model for engine in self._engines.engines]
        return self._settings.model or (models[0] if models else "policy")


def _report_death(task: asyncio.Task[None]) -> None:
    """Without the watch no call is sent any more, without the tending no rollout lapses; the log must say why."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)
