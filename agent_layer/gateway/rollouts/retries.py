"""Retries: how a repeated request finds the call that it repeats, so that no step is recorded twice."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec


class RetryKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a request as a retry."""

    call_id: str | None
    """From the header of the outermost layer."""
    idempotency_key: str | None
    retry_count: int
    """How often the client's SDK says that it has tried before."""
    digest: int
    """Hash of everything that was asked, and of the address."""


@dataclass(eq=False, slots=True)
class Call:
    """One call of the model, while it runs and for as long as its answer may be asked for again."""

    call_id: str
    agent: str | None = None
    """Name of the agent that calls; None: not known."""
    number: int = 0
    """How many calls its agent made before in this rollout. A call that is made again after a failure keeps it."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    is_started: bool = False
    """Its start is recorded."""
    is_good: bool = False
    """It ended with a whole answer; others are made again when they are retried."""
    num_joined: int = 0
    """Clients that wait for its answer besides the one that began it."""
    content_type: str = "application/json"
    answer: bytes | None = None
    """What the client was sent; None while it runs, after a failure, and once the cache evicted it."""

    async def wait(self) -> bool:
        """Wait for its end; whether that was a whole answer."""
        self.num_joined += 1
        try:
            await self.done.wait()
        finally:
            self.num_joined -= 1
        return self.is_good


_Name: TypeAlias = tuple[str | None, int]
"""(id or key, digest of the question)."""


@dataclass(slots=True)
class CallTable:
    """Calls of one rollout."""

    _by_id: dict[str, Call] = field(default_factory=dict[str, Call])
    """Each call under its own id."""
    _newest: dict[_Name, Call] = field(default_factory=dict[_Name, Call])
    """The last call that was begun under an asked id."""
    _by_key: dict[_Name, Call] = field(default_factory=dict[_Name, Call])
    _by_digest: dict[int, Call] = field(default_factory=dict[int, Call])
    _num_made: Counter[str | None] = field(default_factory=Counter[str | None])
    """Calls of each agent, those that were made again counted once."""

    def find(self, asking: RetryKey) -> Call | None:
        """The call that this request repeats.

        Equal questions alone are never a repetition: agents sample. Nor are equal names: clients send the headers that
        they were built with, whatever they ask.
        """
        digest = asking.digest
        if call := self._by_key.get((asking.idempotency_key, digest)) or self._newest.get((asking.call_id, digest)):
            return call
        return self._by_digest.get(asking.digest) if asking.retry_count else None

    async def join(self, key: RetryKey) -> Call | None:
        """Wait for the call that this request repeats; None: there is none that ends well, so it is to be made.

        Of all clients that waited for a failed call one makes it again. The others find and join that call, because
        nothing is awaited between this method's None and ``add``.
        """
        failed: Call | None = None
        while (earlier := self.find(key)) is not failed and earlier is not None:
            if await earlier.wait():
                return earlier
            failed = earlier
        return None

    def add(self, asking: RetryKey, minted_id: str, agent: str | None = None) -> Call:
        """Begin a call under the id that was asked for, or a following one where a failed or running call has it."""
        failed = self.find(asking)
        number = failed.number if failed else self._num_made[agent]
        self._num_made[agent] += failed is None
        call_id = wanted = asking.call_id or minted_id
        num_before = 0
        while (before := self._by_id.get(call_id)) and (before.is_started or not before.done.is_set()):
            num_before += 1
            call_id = f"{wanted}~{num_before}"
        call = self._by_id[call_id] = Call(call_id, agent, number)
        self._newest[wanted, asking.digest] = self._by_digest[asking.digest] = call
        if asking.idempotency_key is not None:
            self._by_key[asking.idempotency_key, asking.digest] = call
        return call

    def abandon(self, call_ids: Collection[str]) -> None:
        """Take no request for a repetition of these calls any more; their ids stay taken."""
        self._newest = {name: call for name, call in self._newest.items() if call.call_id not in call_ids}
        self._by_key = {name: call for name, call in self._by_key.items() if call.call_id not in call_ids}
        self._by_digest = {name: call for name, call in self._by_digest.items() if call.call_id not in call_ids}

    def all(self) -> Collection[Call]:
        """Every call that was begun."""
        return self._by_id.values()


@dataclass(slots=True)
class ResponseCache:
    """LRU cache of the answers of all rollouts, bounded by bytes."""

    max_bytes: int = 16 << 20
    _bytes: int = 0
    _calls: OrderedDict[Call, int] = field(default_factory=OrderedDict[Call, int])

    def keep(self, call: Call, answer: bytes, content_type: str) -> None:
        """Keep what the client is sent."""
        call.answer, call.content_type = answer, content_type
        self._calls[call] = len(answer)
        self._bytes += len(answer)
        while self._bytes > self.max_bytes:
            oldest, size = self._calls.popitem(last=False)
            oldest.answer = None
            self._bytes -= size

    def clear(self, calls: Iterable[Call]) -> None:
        """Evict the answers of closed rollouts; small ones would fill the cache for hours."""
        for call in calls:
            self._bytes -= self._calls.pop(call, 0)
            call.answer = None
