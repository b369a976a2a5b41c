"""Addresses at which operators list engines, let them join, drain them, hold their calls and remove them."""

import asyncio
from collections.abc import Callable, Collection
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta
from redis import Redis

from agent_layer.engines import (
    Engine,
    PushedVersion,
    drain_engine,
    hold_engines,
    join_engine,
    leave_engine,
    release_engines,
)
from agent_layer.errors import BadInputError
from agent_layer.gateway.calls.requests import read_body
from agent_layer.gateway.engines.pool import EngineWatcher
from agent_layer.gateway.http.errors import as_json
from agent_layer.settings import Settings


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /engines, /engines/drain and /engines/leave."""

    url: str
    location: str | None = None
    """Where the weights of an engine lie that was just started; None: what it says itself."""
    is_pushed: bool = False
    """The owner of a joining engine pushes weights into it: no calls until it announces their version."""
    seconds: float = 0.0
    """How long a drain waits for calls in flight; 0: not at all."""


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /engines/hold."""

    urls: list[str]
    seconds: float | None = None
    """Longest wait for calls in flight; None: AGENT_LAYER_DRAIN_SECONDS."""


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /engines/release: ``version`` and ``location``, or ``cancel``."""

    urls: list[str]
    """Engines that have the version."""
    version: Annotated[int, Meta(ge=0)] | None = None
    location: str | None = None
    cancel: bool = False
    """Nothing was pushed: they serve what they served."""


class ShownEngine(Engine, frozen=True, kw_only=True):
    """An engine as the registry knows it, and how busy this gateway finds it."""

    in_flight: int
    """Calls from this gateway process."""
    others: int
    """Calls of others, when it was asked last."""
    cache_usage: float
    is_well: bool


class EngineRoutes:
    """Handlers for operators.

    Args:
        settings: whose run engines join, and from where they may.
        redis: holds the registry.
        watch: knows how busy engines are; reads the registry again after each change.
        check_operator: raises RefusedError for other clients.
    """

    def __init__(
        self, settings: Settings, redis: Redis, watch: EngineWatcher, check_operator: Callable[[web.Request], None]
    ) -> None:
        self._settings = settings
        self._redis = redis
        self._watch = watch
        self._check_operator = check_operator

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses."""
        return [
            web.get("/engines", self._list),
            web.post("/engines", self._join),
            web.post("/engines/drain", self._drain),
            web.post("/engines/hold", self._hold),
            web.post("/engines/release", self._release),
            web.post("/engines/leave", self._leave),
            web.delete("/engines", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines])

    async def _join(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        engine = await asyncio.to_thread(
            join_engine, self._settings, self._redis, body.url, body.location, is_pushed=body.is_pushed
        )
        await self._watch.refresh()
        return as_json(self._shown(engine))

    async def _drain(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        url, seconds = body.url, body.seconds
        self._check_seconds(f"drain of {url}", seconds)
        await asyncio.to_thread(drain_engine, self._settings, self._redis, url, seconds)
        return await self._show([url])

    async def _hold(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        body = await read_body(request, HoldRequest)
        seconds = self._settings.drain_seconds if body.seconds is None else body.seconds
        self._check_seconds("POST /engines/hold", seconds)
        return await self._show(await asyncio.to_thread(hold_engines, self._settings, self._redis, body.urls, seconds))

    async def _release(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        body = await read_body(request, ReleaseRequest)
        pushed = None
        if body.version is not None and body.location is not None:
            pushed = PushedVersion(number=body.version, location=body.location)
        if body.cancel == (pushed is not None) or (body.version is None) != (body.location is None):
            raise BadInputError(
                "POST /engines/release: expected either version and location, or cancel; give one of both"
            )
        return await self._show(
            await asyncio.to_thread(release_engines, self._settings, self._redis, body.urls, pushed)
        )

    async def _leave(self, request: web.Request) -> web.Response:
        return await self._remove((await self._read(request)).url)

    async def _delete(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        if not (url := request.query.get("url")):
            raise BadInputError("DELETE /engines: expected the address of an engine as ?url=, found none; add it")
        return await self._remove(_address(url))

    async def _remove(self, url: str) -> web.Response:
        await asyncio.to_thread(leave_engine, self._settings, self._redis, url)
        await self._watch.refresh()
        return as_json({"url": url, "in_flight": self._watch.rotation.get_load(url).in_flight})

    async def _read(self, request: web.Request) -> EngineRequest:
        self._check_operator(request)
        body = await read_body(request, EngineRequest)
        return msgspec.structs.replace(body, url=_address(body.url))

    def _check_seconds(self, subject: str, seconds: float) -> None:
        """Raise for a wait that is longer than a client waits for an answer."""
        if not 0 <= seconds <= self._settings.request_seconds:
            most = f"{self._settings.request_seconds:g}"
            raise BadInputError(f"{subject}: expected 0 to {most} seconds, found {seconds:g}; ask again instead")

    async def _show(self, urls: Collection[str]) -> web.Response:
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines if engine.url in urls])

    def _shown(self, engine: Engine) -> ShownEngine:
        load = self._watch.rotation.get_load(engine.url)
        about = {"in_flight": load.in_flight, "others": load.others}
        about |= {"cache_usage": load.cache_usage, "is_well": load.is_well}
        return msgspec.convert(msgspec.structs.asdict(engine) | about, ShownEngine)


def _address(url: str) -> str:
    return url.strip().rstrip("/").removesuffix("/v1")
