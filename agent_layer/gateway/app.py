"""This file holds the gateway's addresses, and what it is made of while it serves."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import closing, suppress
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web
from redis import Redis

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.gateway.answers import RefusedError, answer_errors, as_json
from agent_layer.gateway.calls import Calls
from agent_layer.gateway.opening import rollout_of
from agent_layer.gateway.policy_book import PolicyBook
from agent_layer.gateway.rollouts import LiveRollout, Rollouts
from agent_layer.gateway.sealing import Sealer, SettlingLog, reward_of
from agent_layer.gateway.upstream import Upstream
from agent_layer.gateway.versions import EngineWatch
from agent_layer.schema.codec import check_storable
from agent_layer.schema.gateway import CloseRequest, EndRequest, OpenedRollout, OpenRequest, RewardRequest
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store.engines import EngineBoard
from agent_layer.store.keys import Keys

__all__ = ["Gateway", "build_app"]

ROLLOUT_HEADER = "x-agent-layer-rollout"
log = logging.getLogger(__name__)
B = TypeVar("B", bound=msgspec.Struct)


def build_app(settings: Settings, redis: Redis, log: SettlingLog) -> web.Application:
    """Give the gateway as a web application.

    Args:
        settings: ``api_key`` must be set: it is the operator's.
        redis: holds the board, on which the engines must be registered.
        log: where records go.
    """
    return Gateway(settings, redis, log).app()


class Gateway:
    """Handlers by address; the work is done by Rollouts, Calls and Sealer."""

    def __init__(self, settings: Settings, redis: Redis, log: SettlingLog) -> None:
        if not settings.api_key:
            raise BadInputError("gateway: expected an operator key, found none; set AGENT_LAYER_API_KEY")
        self._settings = settings
        self._log = log
        keys = Keys(settings.namespace)
        board = EngineBoard(redis, keys, settings.gateway_seconds)
        self._rollouts = Rollouts(settings.api_key, settings.idle_seconds)
        self._engines = EngineWatch(board, new_id(), settings.engine_urls)
        self._policies = PolicyBook(redis, keys, log)
        self._sealer = Sealer(settings=settings, rollouts=self._rollouts, log=log, redis=redis, keys=keys)
        self._calls: Calls

    def app(self) -> web.Application:
        """Put addresses and handlers together."""
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=[answer_errors])
        app.cleanup_ctx.append(self._live)
        app.add_routes(
            [
                web.post("/r/{trajectory_id}/v1/chat/completions", self._chat),  # most requests: first to be tried
                web.get("/health", self._say_health),
                web.post("/rollouts", self._open),
                web.post("/rollouts/{rollout_id}/close", self._close),
                web.post("/rollouts/{rollout_id}/end", self._end),
                web.post("/r/{trajectory_id}/reward", self._reward),
                web.get("/r/{trajectory_id}/v1/models", self._list_models),
                web.get("/v1/models", self._list_models),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        return app

    async def _live(self, _: web.Application) -> AsyncGenerator[None]:
        upstream = Upstream(self._settings.connect_seconds, self._settings.request_seconds)
        self._calls = Calls(
            settings=self._settings, log=self._log, engines=self._engines, policies=self._policies, upstream=upstream
        )
        with closing(upstream):
            await self._engines.look()
            watching = asyncio.create_task(self._engines.run(), name="engine-watch")
            watching.add_done_callback(_report_death)
            yield
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await self._engines.close()

    async def _say_health(self, _: web.Request) -> web.Response:
        engines = {engine.url: f"{engine.state} {engine.run}:{engine.version}" for engine in self._engines.engines}
        return as_json({"status": "ok", "engines": engines})

    async def _open(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        asked = await _body(request, OpenRequest)
        model = self._model()
        wanted = rollout_of(asked, self._settings.run)
        if overtaken := self._rollouts.find_overtaken(wanted):
            await self._sealer.cut_off(overtaken)
        rollout = self._rollouts.add(wanted)
        if rollout is wanted and rollout.is_ours:
            self._record_start(rollout)
        opened = OpenedRollout(
            rollout_id=rollout.started.rollout_id,
            attempt=rollout.started.attempt,
            trajectory_id=rollout.trajectory_id,
            base_url=f"{request.scheme}://{request.host}/r/{rollout.trajectory_id}/v1",
            api_key=rollout.api_key,
            model=model,
        )
        return as_json(opened)

    def _record_start(self, rollout: LiveRollout) -> None:
        try:
            rollout.logs.add(self._log.append(rollout.started))
        except BackPressureError:
            self._rollouts.forget(rollout)  # it may be opened again when there is room
            raise

    async def _close(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        rollout = self._rollouts.find_attempt(
            request.match_info["rollout_id"], (await _body(request, CloseRequest)).attempt
        )
        return as_json(await self._sealer.close(rollout))

    async def _end(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        asked = await _body(request, EndRequest)
        rollout = self._rollouts.find_attempt(request.match_info["rollout_id"], asked.attempt)
        return as_json(await self._sealer.end(rollout, asked))

    async def _reward(self, request: web.Request) -> web.Response:
        rollout = self._enter(request)
        asked = await _body(request, RewardRequest)
        rollout.check_is_open()
        score = asked.score if asked.score is not None else asked.reward
        reward = reward_of(rollout, score, asked.name, asked.step)
        rollout.logs.add(self._log.append(reward))
        return as_json({"reward_id": reward.reward_id})

    async def _list_models(self, request: web.Request) -> web.Response:
        if "trajectory_id" in request.match_info:
            self._enter(request)
        else:
            self._check_operator(request)
        return as_json({"object": "list", "data": [{"id": self._model(), "object": "model", "owned_by": "policy"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._calls.answer(self._enter(request), request)

    def _enter(self, request: web.Request) -> LiveRollout:
        """Find the rollout that the address names, or, for the operator, a header."""
        if trajectory_id := request.match_info.get("trajectory_id"):
            return self._rollouts.enter(trajectory_id, _key_of(request))
        self._check_operator(request)
        if trajectory_id := request.headers.get(ROLLOUT_HEADER):
            return self._rollouts.find(trajectory_id)
        raise BadInputError(
            f"{request.path}: expected the header {ROLLOUT_HEADER} with a trajectory id, found none;"
            " use the base_url that POST /rollouts answers, or the tracer, which adds the header"
        )

    def _check_operator(self, request: web.Request) -> None:
        if not self._rollouts.is_operator(_key_of(request)):
            raise RefusedError(
                401, "invalid_api_key", "gateway: only the operator may do this; use AGENT_LAYER_API_KEY"
            )

    def _model(self) -> str:
        """Name of the policy's model, for agents that want one; any name is accepted of them."""
        models = [engine.model for engine in self._engines.engines]
        return self._settings.model or (models[0] if models else "policy")


def _report_death(task: asyncio.Task[None]) -> None:
    """Without the watch no call is sent any more; the log must say why."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("engine watch ended", exc_info=error)


def _key_of(request: web.Request) -> str:
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


async def _body(request: web.Request, kind: type[B]) -> B:
    try:
        body = msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInputError(f"{request.method} {request.path}: {error}; correct the body") from error
    check_storable(body, f"{request.method} {request.path}")
    return body
