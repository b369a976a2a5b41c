"""Retries: how a repeated request finds the call that it repeats, so that no step is recorded twice.

A name (call id or ``Idempotency-Key``) with the same question is the same call, whatever became of it. Where an SDK
only counts its tries, nothing tells equal questions apart: agents sample, so each of n equal questions is a call of its
own. Such a retry takes over a call whose client is gone, or makes a failed one again. It takes that call for itself, so
that no answer has two readers. A call whose client waits, and an answer that was delivered, are never repeated.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

_Question: TypeAlias = tuple[str | None, bool, int]
"""(agent, whether the answer is streamed, digest)."""


class RetryKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a request as a retry."""

    call_id: str | None
    """From the header of the outermost layer."""
    idempotency_key: str | None
    retry_count: int
    """How often the client's SDK says that it has tried before."""
    digest: int
    """Hash of everything that was asked, and of the address."""
    agent: str | None = None
    """Name of the agent that asks; None: not known."""
    is_streamed: bool = False
    """Whether the answer is to come piece by piece."""

    @property
    def is_named(self) -> bool:
        """Whether the client names its call."""
        return self.call_id is not None or self.idempotency_key is not None

    @property
    def question(self) -> _Question:
        """What requests without a name have in common with their retries."""
        return self.agent, self.is_streamed, self.digest


@dataclass(eq=False, slots=True)
class Call:
    """One call of the model, while it runs and for as long as its answer may be asked for again."""

    call_id: str
    agent: str | None = None
    """Name of the agent that calls; None: not known."""
    number: int = 0
    """How many calls its agent made before in this rollout. A call that is made again after a failure keeps it."""
    question_id: str = ""
    """Id of the call that asked this question first; calls that are made again share it."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    is_started: bool = False
    """Its start is recorded."""
    is_good: bool = False
    """It ended with a whole answer; others are made again when they are retried."""
    num_joined: int = 0
    """Clients that wait for its answer besides the one that began it."""
    has_lost_client: Callable[[], bool] | None = None
    """Whether the client that began it is gone; None: it does not run."""
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
    _unread: dict[_Question, list[Call]] = field(default_factory=dict[_Question, list[Call]])
    """Calls without a name whose answers were not delivered, and that no retry took over; the oldest first."""
    _num_made: Counter[str | None] = field(default_factory=Counter[str | None])
    """Calls of each agent, those that were made again counted once."""

    async def join(self, key: RetryKey) -> Call | None:
        """Wait for the call that this request repeats, and return it. None: it repeats none.

        A good call's answer is to be repeated. A failed one is to be made again: of all clients that waited for it
        under its name, one makes it again, and the others find and join that call, because nothing is awaited between
        this method's return and ``add``.
        """
        if key.is_named:
            failed: Call | None = None
            while (earlier := self._find_named(key)) is not failed and earlier is not None:
                if await earlier.wait():
                    return earlier
                failed = earlier
            return failed
        call = self._take_over(key.question) if key.retry_count else None
        if call is None:
            return None
        try:
            await call.wait()
        except asyncio.CancelledError:
            self.return_undelivered(key, call)
            raise
        is_evicted = call.is_good and call.answer is None
        return None if is_evicted else call

    def _find_named(self, key: RetryKey) -> Call | None:
        """A name alone is no repetition: clients send the headers that they were built with, whatever they ask."""
        by_key = self._by_key.get((key.idempotency_key, key.digest)) if key.idempotency_key is not None else None
        return by_key or self._newest.get((key.call_id, key.digest))

    def _take_over(self, question: _Question) -> Call | None:
        """Take the call that a retry without a name repeats: answered before running before failed."""
        unread = self._unread.get(question, [])
        lost = [call for call in unread if call.has_lost_client is None or call.has_lost_client()]
        if not lost:
            return None
        call = min(lost, key=lambda one: (not one.is_good, one.done.is_set()))
        unread.remove(call)
        return call

    def record_delivery(self, key: RetryKey, call: Call) -> None:
        """Record that the client has the answer, which no retry may have then."""
        if call in (unread := self._unread.get(key.question, [])):
            unread.remove(call)

    def return_undelivered(self, key: RetryKey, call: Call) -> None:
        """Let another retry take over a call whose retry is gone, too."""
        if not key.is_named:
            self._unread.setdefault(key.question, []).insert(0, call)

    def add(self, asking: RetryKey, minted_id: str, agent: str | None = None, again: Call | None = None) -> Call:
        """Begin a call under the id that was asked for, or a following one where a failed or running call has it.

        Args:
            asking: the request.
            minted_id: id of a call without one.
            agent: that calls.
            again: the failed call that is made again; None: the question is new.
        """
        number = again.number if again else self._num_made[agent]
        self._num_made[agent] += again is None
        call_id = wanted = asking.call_id or minted_id
        num_before = 0
        while (before := self._by_id.get(call_id)) and (before.is_started or not before.done.is_set()):
            num_before += 1
            call_id = f"{wanted}~{num_before}"
        call = self._by_id[call_id] = Call(call_id, agent, number, again.question_id if again else call_id)
        self._newest[wanted, asking.digest] = call
        if asking.idempotency_key is not None:
            self._by_key[asking.idempotency_key, asking.digest] = call
        if not asking.is_named:
            self._unread.setdefault(asking.question, []).append(call)
        return call

    def abandon(self, call_ids: Collection[str]) -> None:
        """Take no request for a repetition of these calls any more; their ids stay taken."""
        self._newest = {name: call for name, call in self._newest.items() if call.call_id not in call_ids}
        self._by_key = {name: call for name, call in self._by_key.items() if call.call_id not in call_ids}
        for unread in self._unread.values():
            unread[:] = [call for call in unread if call.call_id not in call_ids]

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
