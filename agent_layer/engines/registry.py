"""Registry in which engines, trainers and gateways meet; it gives each sampled token its policy version.

An engine's state is a cycle ``serving → draining → loading → serving``, which the trainer drives. Each move to draining
has a new ``epoch``. A gateway sends to serving engines only, and reports for each epoch when it has no call in flight
any more. The trainer loads when every live gateway has reported. A gateway registers itself *before* it reads the
registry, and a trainer lists gateways *after* it wrote ``draining``, so no gateway is missed. A driver that dies
half-way leaves the engine draining or loading; no gateway sends to it until the next switch has loaded it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import msgspec
from redis import Redis
from redis.client import Pipeline

from agent_layer.engines.fingerprints import read_fingerprints
from agent_layer.errors import EngineError, NotFoundError
from agent_layer.infra.redis import Keys

EngineState: TypeAlias = Literal["serving", "draining", "loading"]
LogprobsMode: TypeAlias = Literal["raw", "processed"]

_IDLE = "idle:"
_NUM_EVENTS_KEPT = 1000
_POLL_SECONDS = 0.005


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One registered engine."""

    url: str
    """Address without /v1."""
    run: str
    version: int
    """Policy version that it serves, or served last."""
    location: str
    """Directory or model name of those weights."""
    model: str
    """Name of the served model."""
    logprobs_mode: LogprobsMode
    state: EngineState
    epoch: int
    """Number of the last move to draining, or of the last registration."""
    is_drained: bool = False
    """An operator took it out of rotation; trainers still load weights into it."""
    is_joined: bool = False
    """An operator added it at run time: gateways use it although their settings do not name it."""
    started_from: str | None = None
    """Location of the weights that it has after a start; None: not known."""
    tokenizer_hash: str | None = None
    template_hash: str | None = None
    """Of the files at ``location``; None when they are not readable."""


@dataclass(frozen=True)
class EngineRegistry:
    """The engine registry of one namespace."""

    redis: Redis
    keys: Keys
    gateway_seconds: float = 5.0
    """Trainers do not wait for a gateway that was silent for longer; by then it has stopped sending by itself."""

    def register(self, engine: Engine) -> None:
        """Register an engine that has just started; replaces its earlier entry."""
        key, changes = self.keys.engine(engine.url), _changes(self.redis)
        changes.hset(key, items=_items_of(engine))
        changes.hincrby(key, "epoch", 1)
        self._announce(changes, engine.url)

    def register_unknown(self, engine: Engine) -> Engine:
        """Register an engine unless it is registered; return the entry."""
        if self.redis.hsetnx(self.keys.engine(engine.url), "epoch", 0):
            self.register(engine)
        return self.read(engine.url) or engine

    def read(self, url: str) -> Engine | None:
        """Return one engine; None when it is not registered."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.engine(url)))
        return _engine_of(url, fields) if b"state" in fields else None

    def engines(self) -> list[Engine]:
        """Return all engines, by address."""
        urls = cast("set[bytes]", self.redis.smembers(self.keys.engines))
        found = [self.read(url.decode()) for url in sorted(urls)]
        return [engine for engine in found if engine is not None]

    def change(self, url: str, *, is_drained: bool | None = None, is_joined: bool | None = None) -> None:
        """Change what operators decide about an engine. None: unchanged.

        Raises: NotFoundError: it is not registered.
        """
        wanted = {"is_drained": is_drained, "is_joined": is_joined}
        key = self.keys.engine(url)
        with _changes(self.redis) as changes:
            changes.watch(key)
            if not changes.hexists(key, "state"):
                raise NotFoundError(f"engine {url}: not registered; see 'agent-layer engines'")
            changes.multi()
            changes.hset(key, mapping={name: _text_of(value) for name, value in wanted.items() if value is not None})
            self._announce(changes, url)

    def mark_ended(self, engine: Engine) -> None:
        """Record that an engine's process has ended: after a restart, its weights differ from its entry.

        It stays out of service until a trainer loads new weights. No change for one that starts with what it served.
        """
        if engine.state == "serving" and engine.started_from not in (None, engine.location):
            with suppress(EngineError):  # another driver moved it meanwhile, and knows more
                self._move(engine.url, engine.epoch, {"state": "loading"})

    def forget(self, url: str) -> None:
        """Remove an engine. Calls that it still answers continue."""
        changes = _changes(self.redis)
        changes.delete(self.keys.engine(url))
        self._announce(changes, url, is_gone=True)

    def switch(
        self, url: str, version: int, location: str, load: Callable[[], str | None], drain_seconds: float = 120.0
    ) -> None:
        """Switch an engine to other weights: drain, load, serve.

        Args:
            url: the engine.
            version: policy version that it serves afterwards; register it first.
            location: where its weights lie.
            load: makes the engine load them; called while no gateway has a call in flight. Returns the model that calls
                must name from now on; None: as before.
            drain_seconds: longest wait for calls in flight.

        Raises:
            EngineError: the engine is unknown, gateways did not drain in time (it then serves as before), or another
                driver moved it meanwhile. What ``load`` raises: the engine then stays out of service.
        """
        before = self.read(url)
        if before is None:
            raise EngineError(f"engine {url}: not registered; register it before a switch")
        epoch = self._drain(url)
        try:
            self._wait_idle(url, epoch, drain_seconds)
        except EngineError:
            if before.state == "serving":
                self._move(url, epoch, {"state": "serving"})
            raise
        self._move(url, epoch, {"state": "loading"})
        model = load()
        fields = {"state": "serving", "version": str(version), "location": location}
        fields |= {"model": model} if model else {}
        found = msgspec.structs.asdict(read_fingerprints(location))
        self._move(url, epoch, fields | {name: _text_of(value) for name, value in found.items()})

    def live_gateways(self) -> list[str]:
        """Return the gateways that renewed themselves within ``gateway_seconds``."""
        alive_since = self._now() - self.gateway_seconds
        members = cast("list[bytes]", self.redis.zrange(self.keys.gateways, alive_since, "+inf", byscore=True))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        return [member.decode() for member in members]

    def _drain(self, url: str) -> int:
        key, changes = self.keys.engine(url), _changes(self.redis)
        changes.hset(key, "state", "draining")
        changes.hincrby(key, "epoch", 1)
        return cast("int", self._announce(changes, url)[1])

    def _wait_idle(self, url: str, epoch: int, drain_seconds: float) -> None:
        deadline = time.monotonic() + drain_seconds
        while busy := self._busy_gateways(url, epoch):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"engine {url}: expected no call in flight within {drain_seconds:.0f} s, but gateways"
                    f" {', '.join(busy)} still have some; it keeps its weights, try again or raise drain_seconds"
                )
            time.sleep(_POLL_SECONDS)

    def _busy_gateways(self, url: str, epoch: int) -> list[str]:
        idle = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.engine(url)))
        return [name for name in self.live_gateways() if int(idle.get(f"{_IDLE}{name}".encode(), -1)) < epoch]

    def _move(self, url: str, epoch: int, fields: dict[str, str]) -> None:
        """Change an engine if it is still in our epoch."""
        key = self.keys.engine(url)
        with _changes(self.redis) as changes:
            changes.watch(key)
            found = int(cast("bytes | None", changes.hget(key, "epoch")) or -1)
            if found != epoch:
                raise EngineError(
                    f"engine {url}: this switch is epoch {epoch}, but the registry is at {found}; another driver moved"
                    " it, run only one trainer per engine"
                )
            changes.multi()
            changes.hset(key, items=[part for pair in fields.items() for part in pair])
            self._announce(changes, url)

    def renew_gateway(self, gateway_id: str) -> None:
        """Record that a gateway is alive. It may send for ``gateway_seconds`` from before this call, no longer."""
        self.redis.zadd(self.keys.gateways, {gateway_id: self._now()})

    def remove_gateway(self, gateway_id: str) -> None:
        """Record that a gateway ended, so that trainers do not wait for it."""
        self.redis.zrem(self.keys.gateways, gateway_id)

    def mark_idle(self, url: str, gateway_id: str, epoch: int) -> None:
        """Record that the gateway has no call in flight and starts none until the engine serves again."""
        self.redis.hset(self.keys.engine(url), f"{_IDLE}{gateway_id}", str(epoch))

    def last_event(self) -> str:
        """Return the position from which ``wait_event`` misses no event after this call."""
        newest = cast("list[tuple[bytes, object]]", self.redis.xrevrange(self.keys.engine_events, count=1))
        return newest[0][0].decode() if newest else "0-0"

    def wait_event(self, after: str, seconds: float) -> str:
        """Wait until an engine changes, at most this long; return the position reached."""
        found = self.redis.xread({self.keys.engine_events: after}, block=max(1, int(seconds * 1000)))
        return self.last_event() if found else after

    def _announce(self, changes: Pipeline, url: str, *, is_gone: bool = False) -> list[object]:
        (changes.srem if is_gone else changes.sadd)(self.keys.engines, url)
        changes.xadd(self.keys.engine_events, {"url": url}, maxlen=_NUM_EVENTS_KEPT)
        return cast("list[object]", changes.execute())

    def _now(self) -> float:
        """Seconds since the epoch by the clock that all share: Redis's."""
        seconds, microseconds = self.redis.time()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        return seconds + microseconds / 1e6


def _changes(redis: Redis) -> Pipeline:
    """Begin a transaction."""
    return redis.pipeline()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py


def _items_of(engine: Engine) -> list[str]:
    """Field names and values, alternating."""
    fields = msgspec.structs.asdict(engine)
    return [part for name, value in fields.items() if name not in ("url", "epoch") for part in (name, _text_of(value))]


def _text_of(value: object) -> str:
    """Text for Redis; empty for what is not known."""
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)


def _engine_of(url: str, fields: dict[bytes, bytes]) -> Engine:
    values = {
        name.decode(): value.decode() for name, value in fields.items() if value and not name.startswith(_IDLE.encode())
    }
    return msgspec.convert({**values, "url": url}, Engine, strict=False)
