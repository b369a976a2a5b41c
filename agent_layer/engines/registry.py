"""Registry in which engines, trainers and gateways meet; it gives each sampled token its policy version.

An engine's state is a cycle ``serving → draining → loading → serving``, which the trainer drives. Each move to draining
has a new ``epoch``. A gateway sends to serving engines only, and reports for each epoch when it has no call in flight
any more. The trainer loads when every live gateway has reported. A gateway registers itself *before* it reads the
registry, and a trainer lists gateways *after* it wrote ``draining``, so no gateway is missed. A driver that dies
half-way leaves the engine draining or loading; no gateway sends to it until the next switch has loaded it.

Holds and releases of several engines happen at one moment, and so do readings of all.

Each change of an entry raises its ``revision``. A process that knows a higher one than Redis holds writes the entry
again: the server was emptied, or is an older copy. A list of engines that left keeps those from coming back.

``switch`` loads one engine. ``hold`` is for an owner that pushes weights into several engines at once, such as veRL:
calls wait until it releases them under the version that it announces.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from redis import Redis
from redis.client import Pipeline

from agent_layer.engines.control import EngineControl
from agent_layer.engines.entry import IDLE, NUMBERS, QUIET, Engine, list_items, read_entry, to_text
from agent_layer.engines.holds import EngineHold
from agent_layer.errors import EngineError, NotFoundError
from agent_layer.infra import Keys, SharedClock

_NUM_EVENTS_KEPT = 1000
_POLL_SECONDS = 0.005
_LEFT_SECONDS = 7 * 86_400  # for which the list keeps an engine that left; then no gateway remembers it
_GATEWAY_KEPT_SECONDS = 86_400
"""After this silence a gateway is no longer listed."""


@dataclass(frozen=True)
class EngineRegistry:
    """The engine registry of one namespace."""

    redis: Redis
    keys: Keys
    gateway_seconds: float = 5.0
    """Trainers do not wait for a gateway that was silent for longer; by then it has stopped sending by itself."""
    _known: dict[str, Engine] = field(default_factory=dict[str, Engine], init=False, repr=False, compare=False)
    """Newest entry that this process has read, by address."""
    _left: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False, compare=False)
    """Revision of each engine that left, as far as this process has noticed."""
    _known_keys: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False, compare=False)
    _renewals: dict[str, float] = field(default_factory=dict[str, float], init=False, repr=False, compare=False)
    """Last renewal of each gateway of this process."""

    @cached_property
    def _clock(self) -> SharedClock:
        return SharedClock(self.redis, self.keys)

    def register(self, engine: Engine, access_key: str | None = None) -> None:
        """Register an engine that has just started; replaces its earlier entry.

        Args:
            engine: its entry.
            access_key: that each request to it must carry (bearer); None: it asks for none.
        """
        self._transact([engine.url], lambda changes: self._write(changes, engine, access_key))

    def register_unknown(self, engine: Engine) -> Engine:
        """Register an engine unless it is registered; return the entry."""

        def register(changes: Pipeline) -> None:
            if not changes.hexists(self.keys.engine(engine.url), "state"):
                self._write(changes, engine, self._known_keys.get(engine.url))

        self._transact([engine.url], register)
        return self.read(engine.url) or engine

    def read(self, url: str) -> Engine | None:
        """Return one engine; None when it is not registered."""
        return self._read_all([url])[url]

    def _read_all(self, urls: Iterable[str]) -> dict[str, Engine | None]:
        """Return engines by address, all as they are at one moment."""
        found = dict[str, Engine | None].fromkeys(urls)
        reading = _changes(self.redis, is_atomic=len(found) > 1)
        for url in found:
            reading.hgetall(self.keys.engine(url))
        for url, fields in zip(found, cast("list[dict[bytes, bytes]]", reading.execute()), strict=True):
            found[url] = read_entry(url, fields)
        for engine in filter(None, found.values()):
            known = self._known.get(engine.url)
            if engine.revision > self._left.get(engine.url, -1) and (
                known is None or known.revision <= engine.revision
            ):
                self._known[engine.url] = engine
                self._left.pop(engine.url, None)
        return found

    def restore_lost(self, found: Iterable[Engine]) -> list[str]:
        """Write the entries again that Redis has forgotten, or holds as they were before; return their addresses.

        Args:
            found: what ``engines`` has just returned. An engine that left is removed again.
        """
        stored = {engine.url: engine.revision for engine in found}
        back = [url for url, revision in self._left.items() if stored.get(url, revision + 1) <= revision]
        for url in back:
            self.forget(url)
        lost = [known for known in list(self._known.values()) if stored.get(known.url, -1) < known.revision]
        return back + [known.url for known in lost if self._restore(known)]

    def engines(self) -> list[Engine]:
        """Return all engines, by address, as they are at one moment: of a hold of several all are held, or none."""
        urls = cast("set[bytes]", self.redis.smembers(self.keys.engines))
        return list(filter(None, self._read_all(url.decode() for url in sorted(urls)).values()))

    def access_keys(self) -> dict[str, str]:
        """Return the keys that engines ask for, by address."""
        found = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.engine_keys))
        keys = {url.decode(): key.decode() for url, key in found.items()}
        self._known_keys.update(keys)
        return keys

    def control(self, url: str, timeout_seconds: float = EngineControl.timeout_seconds) -> EngineControl:
        """Return the control of an engine, with the key that it asks for. It need not be registered."""
        key = cast("bytes | None", self.redis.hget(self.keys.engine_keys, url))
        return EngineControl(url, timeout_seconds, key.decode() if key else None)

    def change(self, url: str, *, is_drained: bool | None = None, is_joined: bool | None = None) -> int:
        """Change what operators decide about an engine. None: unchanged.

        Returns: the number of its drains, for ``wait_drained``.
        Raises: NotFoundError: it is not registered.
        """
        wanted = {"is_drained": is_drained, "is_joined": is_joined}
        key = self.keys.engine(url)

        def change(changes: Pipeline) -> None:
            if not changes.hexists(key, "state"):
                raise NotFoundError(f"engine {url}: not registered; see 'agent-layer engines'")
            quiet = self._list_reports(changes, url, QUIET) if is_drained else []
            changes.multi()
            changes.hincrby(key, "drains", 1 if is_drained else 0)
            changes.hset(key, mapping={name: to_text(value) for name, value in wanted.items() if value is not None})
            self._finish(changes, url, quiet)

        return cast("int", self._transact([url], change)[0])

    def wait_drained(self, url: str, drains: int, seconds: float) -> None:
        """Wait until no gateway has a call in flight at a drained engine.

        Raises: EngineError: calls are in flight for longer, or the engine left meanwhile; none is cut.
        """
        deadline = time.monotonic() + seconds
        while busy := self._busy_gateways(url, QUIET, drains):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"engine {url}: expected its calls to end within {seconds:g} s, but gateways {', '.join(busy)}"
                    " still have some; it gets no new ones, so drain it again with a longer wait"
                )
            time.sleep(_POLL_SECONDS)

    def mark_ended(self, engine: Engine) -> None:
        """Record that an engine's process has ended: after a restart, its weights differ from its entry.

        It stays out of service until a trainer loads new weights. No change for one that starts with what it served.
        """
        is_other = engine.is_pushed or engine.started_from not in (None, engine.location)
        if engine.state == "serving" and is_other:
            with suppress(EngineError):  # another driver moved it meanwhile, and knows more
                held = {"state": "loading", "held_since": str(self._now())}
                self._move({engine.url: engine.epoch}, lambda _: held)

    def forget(self, url: str) -> None:
        """Remove an engine. Calls that it still answers continue."""
        now = self._now()

        def forget(changes: Pipeline) -> None:
            last = int(cast("bytes | None", changes.hget(self.keys.engine(url), "revision")) or 0)
            self._left[url] = max(last, int(now * 1000), self._left.get(url, 0))
            changes.multi()
            changes.delete(self.keys.engine(url))
            changes.hdel(self.keys.engine_keys, url)
            changes.zadd(self.keys.engines_left, {url: self._left[url]})
            changes.zremrangebyscore(self.keys.engines_left, "-inf", int((now - _LEFT_SECONDS) * 1000))
            changes.srem(self.keys.engines, url)
            self._wake(changes, url)

        self._known.pop(url, None)
        self._transact([url], forget)

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
        hold = self.hold([url], drain_seconds)
        model = load()
        hold.release(version, location, models={url: model} if model else {})

    def hold(self, urls: Iterable[str], drain_seconds: float = 120.0) -> EngineHold:
        """Hold the calls to some engines, so that their owner can change their weights; see ``EngineHold``.

        Returns when no gateway has a call in flight at any of them. Calls that arrive meanwhile wait for the release,
        up to the ``request_seconds`` of their gateway.

        Args:
            urls: the engines; those that an earlier driver left half-way are taken over.
            drain_seconds: longest wait for calls in flight.

        Raises: EngineError: an engine is unknown, left meanwhile, or gateways did not drain in time (all serve as
            before), or another driver moved an engine meanwhile.
        """
        found = self._read_all(urls)
        if unknown := [url for url, engine in found.items() if engine is None]:
            raise EngineError(f"engine {', '.join(unknown)}: not registered; register it before a switch")
        serving = {url for url, engine in found.items() if engine and engine.state == "serving"}
        epochs = self._drain(found, serving)
        hold = EngineHold(registry=self, epochs=epochs, serving=serving)
        try:
            self._wait_idle(epochs, drain_seconds)
            if left := epochs.keys() - self._move(epochs, lambda _: {"state": "loading"}):
                raise _left_meanwhile(left)
        except EngineError:
            with suppress(EngineError):  # of an engine that another driver moved; the first error says why
                hold.cancel()
            raise
        return hold

    def find_hold(self, urls: Iterable[str]) -> EngineHold:
        """Return the hold that another process began, of those engines whose calls wait."""
        found = self._read_all(urls)
        held = {url: engine for url, engine in found.items() if engine and engine.state == "loading"}
        epochs = {url: engine.epoch for url, engine in held.items()}
        unchanged = {url for url, engine in held.items() if engine.is_unchanged}
        return EngineHold(registry=self, epochs=epochs, serving=unchanged)

    def serve(
        self, epochs: Mapping[str, int], fields: Mapping[str, Mapping[str, str]], *, is_switch: bool = True
    ) -> float:
        """End the hold of engines, all at one moment, so that none of them gets the calls that waited for the others.

        Args:
            epochs: by address, in which they are held. An engine that left meanwhile is skipped.
            fields: by address, what changes.
            is_switch: they have new weights.

        Returns: the longest time for which one held calls, in seconds.
        Raises: EngineError: another driver moved an engine meanwhile; all others serve.
        """
        now, stalls = self._now(), {"": 0.0}

        def end_hold(before: Engine) -> dict[str, str]:
            stalls[before.url] = held = max(0.0, now - before.held_since) if before.held_since else 0.0
            values = {"state": "serving", "held_since": "", "is_unchanged": "", **fields[before.url]}
            values["stalled_seconds"] = str(before.stalled_seconds + held)
            if is_switch:
                values |= {"stall_seconds": str(held), "num_switches": str(before.num_switches + 1)}
            return values

        self._move(epochs, end_hold)
        return max(stalls.values())

    def live_gateways(self) -> list[str]:
        """Return the gateways that renewed themselves within ``gateway_seconds``."""
        alive_since = self._clock.read() - self.gateway_seconds
        members = cast("list[bytes]", self.redis.zrange(self.keys.gateways, alive_since, "+inf", byscore=True))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        return [member.decode() for member in members]

    def _drain(self, urls: Collection[str], serving: Collection[str]) -> dict[str, int]:
        """Let engines drain, all at one moment, so that none of them gets the calls of the others; return epochs."""
        epochs, now = dict[str, int](), self._now()

        def drain(changes: Pipeline) -> None:
            found = {url: self._read_in(changes, url) for url in urls}
            if left := [url for url, engine in found.items() if engine is None]:
                raise _left_meanwhile(left)
            reports = {url: self._list_reports(changes, url, IDLE) for url in urls}
            changes.multi()
            for engine in filter(None, found.values()):
                url, key = engine.url, self.keys.engine(engine.url)
                epochs[url] = engine.epoch + 1
                changes.hincrby(key, "epoch", 1)
                changes.hset(key, mapping={"state": "draining", "is_unchanged": to_text(url in serving)})
                if not engine.held_since:  # else by a driver that died half-way
                    changes.hset(key, "held_since", str(now))
                self._finish(changes, url, reports[url])

        self._transact(urls, drain)
        return epochs

    def _wait_idle(self, epochs: Mapping[str, int], drain_seconds: float) -> None:  # kept: raises in its caller's try
        deadline = time.monotonic() + drain_seconds
        for url, epoch in epochs.items():
            while busy := self._busy_gateways(url, IDLE, epoch):
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"engine {url}: expected no call in flight within {drain_seconds:.0f} s, but gateways"
                        f" {', '.join(busy)} still have some; it keeps its weights, try again or raise drain_seconds"
                    )
                time.sleep(_POLL_SECONDS)

    def _busy_gateways(self, url: str, reported: str, number: int) -> list[str]:
        """Return the gateways that have not reported this number. Raises: EngineError: the engine left."""
        stored = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.engine(url)))
        if not stored and self.redis.zscore(self.keys.engines_left, url) is not None:  # else Redis forgot it
            raise _left_meanwhile([url])
        return [name for name in self.live_gateways() if int(stored.get(f"{reported}{name}".encode(), -1)) < number]

    def _move(self, epochs: Mapping[str, int], change: Callable[[Engine], dict[str, str]]) -> set[str]:
        """Change engines, all at one moment, if they are still in our epochs; return all that have not left.

        Raises: EngineError: another driver moved one; all others are changed.
        """
        found = dict[str, Engine | None]()

        def move(changes: Pipeline) -> None:
            found.update({url: self._read_in(changes, url) for url in epochs})
            changes.multi()
            for url, engine in found.items():
                if engine and engine.epoch == epochs[url]:
                    changes.hset(self.keys.engine(url), mapping={**change(engine)})
                    self._finish(changes, url)

        self._transact(epochs, move)
        here = [engine for engine in found.values() if engine]
        if moved := [engine for engine in here if engine.epoch != epochs[engine.url]]:
            raise EngineError(
                f"engine {moved[0].url}: this switch is epoch {epochs[moved[0].url]}, but the registry is at"
                f" {moved[0].epoch}; another driver moved it, run only one trainer per engine"
            )
        return {engine.url for engine in here}

    def _read_in(self, changes: Pipeline, url: str) -> Engine | None:
        """Return an engine as a transaction, before its commands, finds it."""
        return read_entry(url, cast("dict[bytes, bytes]", changes.hgetall(self.keys.engine(url))))

    def renew_gateway(self, gateway_id: str) -> bool:
        """Record that a gateway is alive. It may send for ``gateway_seconds`` from before this call, no longer.

        Returns: whether Redis has forgotten its last renewal, and so perhaps all that it held.
        """
        now, name = self._clock.advance(), self.keys.gateways
        changes = _changes(self.redis)
        changes.zscore(name, gateway_id)
        changes.zadd(name, {gateway_id: now})
        changes.zremrangebyscore(name, "-inf", now - _GATEWAY_KEPT_SECONDS)
        stored = cast("float | None", changes.execute()[0])
        last, self._renewals[gateway_id] = self._renewals.get(gateway_id), now
        return last is not None and now - last < _GATEWAY_KEPT_SECONDS and (stored is None or stored < last)

    def remove_gateway(self, gateway_id: str) -> None:
        """Record that a gateway ended, so that trainers do not wait for it."""
        changes = _changes(self.redis)
        changes.zrem(self.keys.gateways, gateway_id)
        for url in list(self._known):
            changes.hdel(self.keys.engine(url), f"{IDLE}{gateway_id}", f"{QUIET}{gateway_id}")
        changes.execute()

    def mark_idle(self, url: str, gateway_id: str, epoch: int) -> None:
        """Record that the gateway has no call in flight and starts none until the engine serves again."""
        self._report(url, f"{IDLE}{gateway_id}", epoch)

    def mark_quiet(self, url: str, gateway_id: str, drains: int) -> None:
        """Record that the gateway has no call in flight at an engine that an operator drained."""
        self._report(url, f"{QUIET}{gateway_id}", drains)

    def _report(self, url: str, name: str, number: int) -> None:
        """Write a gateway's report into an entry; there is none to write to once the engine has left."""

        def report(changes: Pipeline) -> None:
            if changes.hexists(self.keys.engine(url), "state"):
                changes.multi()
                changes.hset(self.keys.engine(url), name, str(number))

        self._transact([url], report)

    def last_event(self) -> str:
        """Return the position from which ``wait_event`` misses no event after this call."""
        newest = cast("list[tuple[bytes, object]]", self.redis.xrevrange(self.keys.engine_events, count=1))
        return newest[0][0].decode() if newest else "0-0"

    def wait_event(self, after: str, seconds: float) -> str:
        """Wait until an engine changes, at most this long; return the position reached."""
        found = self.redis.xread({self.keys.engine_events: after}, block=max(1, int(seconds * 1000)))
        return self.last_event() if found else after

    def _transact(self, urls: Collection[str], change: Callable[[Pipeline], None]) -> list[object]:
        """Change engines as they were read; again from the start when another, such as a gateway, wrote meanwhile.

        What this process knows of them comes first where Redis has forgotten it: a switch survives that.
        """
        for known in filter(None, map(self._known.get, urls)):
            stored = cast("bytes | None", self.redis.hget(self.keys.engine(known.url), "revision"))
            if int(stored or -1) < known.revision:
                self._restore(known)
        keys = [self.keys.engine(url) for url in urls]
        answers = cast("list[object]", self.redis.transaction(change, *keys))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        self._read_all(urls)
        return answers

    def _write(self, changes: Pipeline, engine: Engine, access_key: str | None) -> None:
        """Add to a transaction a new registration: its numbers are above those that gateways may remember."""
        key, left = self.keys.engine(engine.url), changes.zscore(self.keys.engines_left, engine.url)
        reports = self._list_reports(changes, engine.url)
        least = max(int(self._now() * 1000), int(left or 0))
        changes.multi()
        changes.hset(key, items=list_items(engine))
        for number in NUMBERS:
            changes.hsetnx(key, number, least)
        for number in ("epoch", "drains"):
            changes.hincrby(key, number, 1)
        if access_key is None:
            changes.hdel(self.keys.engine_keys, engine.url)
        else:
            changes.hset(self.keys.engine_keys, engine.url, access_key)
        changes.zrem(self.keys.engines_left, engine.url)
        self._finish(changes, engine.url, reports)

    def _restore(self, known: Engine) -> bool:
        """Write an entry as it was read, unless Redis has a newer one or knows that the engine left."""
        url, key, access_key = known.url, self.keys.engine(known.url), self._known_keys.get(known.url)

        def restore(changes: Pipeline) -> None:
            state, stored = cast("list[bytes | None]", changes.hmget(key, "state", "revision"))
            left = changes.zscore(self.keys.engines_left, url)
            if left is not None and left >= known.revision:
                self._known.pop(url, None)  # another thread may have heard of it, too
                self._left[url] = int(left)
            elif state is None or int(stored or 0) < known.revision:
                changes.multi()
                changes.hset(key, items=list_items(known))
                changes.hset(key, mapping={name: getattr(known, name) for name in NUMBERS})
                if access_key is not None:
                    changes.hset(self.keys.engine_keys, url, access_key)
                changes.sadd(self.keys.engines, url)
                self._wake(changes, url)

        return bool(self.redis.transaction(restore, key))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py

    def _list_reports(self, changes: Pipeline, url: str, kind: str = "") -> list[str]:
        """Return the fields of an entry in which gateways reported for an earlier epoch or drain."""
        names = [name.decode() for name in cast("list[bytes]", changes.hkeys(self.keys.engine(url)))]
        return [name for name in names if name.startswith(kind or (IDLE, QUIET))]

    def _finish(self, changes: Pipeline, url: str, reports: Collection[str] = ()) -> None:
        """Add to a transaction what each change of an entry ends with."""
        if reports:
            changes.hdel(self.keys.engine(url), *reports)
        changes.hincrby(self.keys.engine(url), "revision", 1)
        changes.sadd(self.keys.engines, url)
        self._wake(changes, url)

    def _wake(self, changes: Pipeline, url: str) -> None:
        """Add to a transaction what wakes those who wait for changes of this engine."""
        changes.xadd(self.keys.engine_events, {"url": url}, maxlen=_NUM_EVENTS_KEPT)

    def _now(self) -> float:  # of day, to be shown: nothing lapses by it
        seconds, microseconds = self.redis.time()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        return seconds + microseconds / 1e6


def _left_meanwhile(urls: Iterable[str]) -> EngineError:
    return EngineError(f"engine {', '.join(urls)}: expected it to be registered, but it left meanwhile; join it again")


def _changes(redis: Redis, *, is_atomic: bool = True) -> Pipeline:
    """Begin a transaction, or commands that are sent together."""
    return redis.pipeline(is_atomic)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
