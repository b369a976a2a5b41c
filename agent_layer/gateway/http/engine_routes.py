"""Addresses at which operators list engines, let them join, drain them and remove them."""

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web
from redis import Redis

from agent_layer.engines import Engine, join_engine, leave_engine, open_engine_registry
from agent_layer.gateway.calls import read_body
from agent_layer.gateway.engines import EngineWatcher
from agent_layer.gateway.http.errors import as_json
from agent_layer.settings import Settings


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /engines, /engines/drain and /engines/leave."""

    url: str
    location: str | None = None
    """Where the weights of an engine lie that was just started; None: what it says itself."""


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
            web.post("/engines/leave", self._leave),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines])

    async def _join(self, request: web.Request) -> web.Response:
        asked = await self._read(request)
        engine = await asyncio.to_thread(join_engine, self._settings, self._redis, asked.url, asked.location)
        await self._watch.refresh()
        return as_json(self._shown(engine))

    async def _drain(self, request: web.Request) -> web.Response:
        url = (await self._read(request)).url
        registry = open_engine_registry(self._settings, self._redis)
        await asyncio.to_thread(registry.change, url, is_drained=True)
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines if engine.url == url])

    async def _leave(self, request: web.Request) -> web.Response:
        url = (await self._read(request)).url
        await asyncio.to_thread(leave_engine, self._settings, self._redis, url)
        await self._watch.refresh()
        return as_json({"url": url, "in_flight": self._watch.rotation.load_of(url).in_flight})

    async def _read(self, request: web.Request) -> EngineRequest:
        self._check_operator(request)
        asked = await read_body(request, EngineRequest)
        return msgspec.structs.replace(asked, url=asked.url.strip().rstrip("/").removesuffix("/v1"))

    def _shown(self, engine: Engine) -> ShownEngine:
        load = self._watch.rotation.load_of(engine.url)
        about = {"in_flight": load.in_flight, "others": load.others}
        about |= {"cache_usage": load.cache_usage, "is_well": load.is_well}
        return msgspec.convert(msgspec.structs.asdict(engine) | about, ShownEngine)
