"""Addresses at which operators list engines, let them join, drain them and remove them."""

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web
from redis import Redis

from agent_layer.engines import Engine, drain_engine, join_engine, leave_engine
from agent_layer.errors import BadInputError
from agent_layer.gateway.calls import read_body
from agent_layer.gateway.engines import EngineWatcher
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
            web.delete("/engines", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._check_operator(request)
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines])

    async def _join(self, request: web.Request) -> web.Response:
        asked = await self._read(request)
        engine = await asyncio.to_thread(
            join_engine, self._settings, self._redis, asked.url, asked.location, is_pushed=asked.is_pushed
        )
        await self._watch.refresh()
        return as_json(self._shown(engine))

    async def _drain(self, request: web.Request) -> web.Response:
        asked = await self._read(request)
        url, seconds = asked.url, asked.seconds
        if not 0 <= seconds <= self._settings.request_seconds:
            most = f"{self._settings.request_seconds:g}"
            raise BadInputError(f"drain of {url}: expected 0 to {most} seconds, found {seconds:g}; drain it repeatedly")
        await asyncio.to_thread(drain_engine, self._settings, self._redis, url, seconds)
        await self._watch.refresh()
        return as_json([self._shown(engine) for engine in self._watch.rotation.all_engines if engine.url == url])

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
        return as_json({"url": url, "in_flight": self._watch.rotation.load_of(url).in_flight})

    async def _read(self, request: web.Request) -> EngineRequest:
        self._check_operator(request)
        asked = await read_body(request, EngineRequest)
        return msgspec.structs.replace(asked, url=_address(asked.url))

    def _shown(self, engine: Engine) -> ShownEngine:
        load = self._watch.rotation.load_of(engine.url)
        about = {"in_flight": load.in_flight, "others": load.others}
        about |= {"cache_usage": load.cache_usage, "is_well": load.is_well}
        return msgspec.convert(msgspec.structs.asdict(engine) | about, ShownEngine)


def _address(url: str) -> str:
    return url.strip().rstrip("/").removesuffix("/v1")
