"""The Lua scripts of the queue as typed functions. Each call is one atomic step on the server."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from redis import Redis
from redis.exceptions import ResponseError

from agent_layer.dispatcher.models import (
    Claim,
    HeartbeatAnswer,
    HeldRollout,
    Lease,
    LeaseAnswer,
    Report,
    required_capabilities,
)
from agent_layer.dispatcher.tasks import num_launched
from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra import (
    CLOCK_PRELUDE,
    Backoff,
    Keys,
    LuaScript,
    RedisUnreachableError,
    SharedClock,
    durable_writes,
    open_objects,
)
from agent_layer.schema import Task, decode, encode, new_id
from agent_layer.settings import Settings
from agent_layer.store import restore_index

T = TypeVar("T")
_Call: TypeAlias = Callable[[Sequence[str], Sequence[str | int | float | bytes]], object]

_LeaseFields: TypeAlias = tuple[bytes, bytes, int, bytes, bytes, int, bytes]
_Leased: TypeAlias = tuple[list[_LeaseFields], list[bytes]]
_NothingToLease: TypeAlias = tuple[list[_LeaseFields], list[bytes], int]
_Answer: TypeAlias = tuple[bytes, bytes, bytes, int]

_LUA = Path(__file__).parent / "lua"
_MAX_WHY_LENGTH = 300
"""Most characters of the reason why a task cannot be read: it may quote the task."""

_BACKOFF = Backoff(0.02, 0.5)

_KEYS = ("q", "outbox", "group:", "t:", "dead", "policies:", "clock")
"""Families of ``queue_keys``, in its order."""


def _script(name: str, preludes: str, commands: str, reads: str = "", writes: str = "q:*") -> LuaScript:
    files = (_LUA / f"{prelude}.lua" for prelude in preludes.split())
    return LuaScript(
        file=_LUA / f"{name}.lua",
        preludes=(CLOCK_PRELUDE, *files),
        commands=f"get {commands}",
        reads=f"clock {reads}",
        writes=writes,
        keys=_KEYS,
    )


_END_PRELUDES = "prelude gate index runs ready groups leases forgotten closing"
_INDEX_COMMANDS = "del hdel hget hgetall hincrby incrby pexpire rpush sadd smembers zadd zcard zpopmin zrange"
_END_COMMANDS = (
    "expire hdel hexists hget hincrby hkeys hlen hmget hset hsetnx lpush lrange ltrim scard srem time xadd zrem"
    f" zscore {_INDEX_COMMANDS}"
)

ADD = _script(
    "add",
    "prelude gate index runs ready groups",
    f"{_INDEX_COMMANDS} exists get hexists hmget hset hsetnx scard srem time xadd",
    reads="group:* dead",
)
CLAIM = _script(
    "claim",
    "prelude gate index choose",
    f"{_INDEX_COMMANDS} exists hexists hkeys hmget hset set sismember srem time zrandmember zrem zremrangebyrank",
    reads="t:* policies:*",
    writes="q:* clock",
)
UPCOMING = _script(
    "upcoming", "prelude choose", "hexists hget hkeys hmget smembers time zrange", reads="q:* policies:*", writes=""
)
HEARTBEAT = _script(
    "heartbeat", "prelude", "hdel hmget hset set sismember srem time zadd zrangebyscore zrem", writes="q:* clock"
)
CHECKPOINT = _script("checkpoint", "prelude", "hmget hset time")
_STANDING, _DECISIONS = "t:* group:*", "q:* outbox"
SETTLE = _script("settle", _END_PRELUDES, _END_COMMANDS, _STANDING, _DECISIONS)
REAP = _script(
    "reap", _END_PRELUDES, f"{_END_COMMANDS} set srandmember zrangebyscore", _STANDING, f"{_DECISIONS} clock"
)
CANCEL = _script("cancel", _END_PRELUDES, _END_COMMANDS, _STANDING, _DECISIONS)
_BOOK_COMMANDS = "expire hexists hkeys hlen hmget hset hsetnx lpush lrange ltrim time xadd zrem zscore"
DEAD = _script("dead", "prelude index runs ready", f"{_INDEX_COMMANDS} {_BOOK_COMMANDS}")
RUN = _script("run", "prelude index runs ready", f"{_INDEX_COMMANDS} expire hset srem time xadd")
DRAIN = _script("drain", "prelude index ready", f"{_INDEX_COMMANDS} expire time xadd zscore")
INSPECT = _script(
    "inspect",
    "prelude states",
    "get hget hgetall hkeys hmget lrange sismember smembers time xrevrange zcard zrange zrangebyscore zrevrange zscore",
    reads="q:*",
    writes="",
)

LEASE_SCRIPTS = (CLAIM, UPCOMING, HEARTBEAT, CHECKPOINT, SETTLE, REAP, RUN)
"""What a worker runs."""
SUBMIT_SCRIPTS = (ADD, CANCEL, REAP, DEAD, RUN, DRAIN, INSPECT)
"""What a client of the queue runs."""


class Rules(NamedTuple):
    """When a rollout becomes dead, and when its run is paused."""

    max_attempts: int
    window: int
    """Newest attempts of a run over which the failure rate is taken."""
    rate: float
    """Share of the window that may fail."""


class ClaimTerms(NamedTuple):
    """What a claim does besides leasing."""

    waiter: str = ""
    """Id of the wait that this look belongs to; its list ``wake`` gets a token when there is work for it."""
    wait_seconds: float = 0.0
    """After a look that found nothing: until the waiter looks again without a token; 0: it waits no longer."""
    wants_lacking: bool = False
    """Whether to return needs of sandboxes for which rollouts wait that are left to others."""
    is_reaped: bool = False
    """Lease although something may be due to be reaped."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the queue refused a change that carried a lease."""

    status: str
    """Status of the rollout; 'unknown' when the dispatcher has none of that name."""
    worker: str
    attempt: int
    """The newest attempt."""


class Scripts:
    """The atomic steps of one namespace's queue. Times are seconds of the shared clock."""

    def __init__(
        self, redis: Redis, keys: Keys, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.redis = redis
        self.keys = keys
        self.settings = settings
        self._clock = SharedClock(redis, keys, monotonic=monotonic)
        self._keys = queue_keys(keys)
        self._durable = durable_writes(redis, keys)
        self._rules = Rules(settings.max_attempts, settings.stop_failure_window, settings.stop_failure_rate)
        self._add = self._gated(self._load(ADD))
        self._claim = self._gated(self._load(CLAIM))
        self._upcoming = self._load(UPCOMING)
        self._heartbeat = self._load(HEARTBEAT)
        self._checkpoint = self._load(CHECKPOINT)
        self._settle = self._gated(self._load(SETTLE))
        self._reap = self._gated(self._load(REAP))
        self._cancel = self._gated(self._load(CANCEL))
        self._dead = self._load(DEAD)
        self._run = self._load(RUN)
        self._drain = self._load(DRAIN)
        self._inspect = self._load(INSPECT)

    def _load(self, script: LuaScript) -> _Call:
        """Return the script as a function of its keys and arguments; the last argument is the caller's time."""
        run = script.load(self.redis)
        return lambda keys, arguments: cast("object", run(keys, [*arguments, self._clock.estimate_ms()]))

    def complete(self, write: Callable[[], T]) -> T:
        """Call ``write``, and return its result once Redis cannot forget it; see ``DurableWrites``."""
        return self._durable.complete(self.redis, write)

    def add(self, groups: Sequence[tuple[str, Task]], max_queued: int) -> list[bool] | int:
        """Queue (group id, task) pairs; return True for each new group, or the number queued when there is no room."""
        flat = [field for group_id, task in groups for field in _group_fields(group_id, task)]
        added, num_unfinished = cast("tuple[list[int], int]", self._add(self._keys, [max_queued, *flat]))
        self._finish(num_unfinished)
        return added[1] if added[:1] == [-1] else [one == 1 for one in added]

    def claim(
        self,
        worker: str,
        num: int,
        capabilities: Iterable[str],
        *,
        lease_seconds: float,
        run: str,
        terms: ClaimTerms = ClaimTerms(),  # noqa: B008  # immutable
    ) -> Claim:
        """Lease up to ``num`` rollouts of a run (empty: of any run); lease none while something is due to be reaped.

        The client repeats the call when its answer is lost; the script then returns the leases that it made before.
        """
        looks = [int(terms.is_reaped), new_id(), terms.waiter, _ms(terms.wait_seconds), int(terms.wants_lacking)]
        arguments = [num, _ms(lease_seconds), worker, run, *looks, *capabilities]
        answer = cast("_Leased | _NothingToLease | tuple[()]", self._claim(self._keys, arguments))
        if len(answer) == 0:
            return Claim(leases=[], is_due=True)
        lacking = [need.decode() for need in answer[1]]
        if len(answer) == 2:  # leases, and what is lacking
            return _claim(answer[0], lacking)
        due_seconds = answer[2] / 1000 if answer[2] >= 0 else None
        return Claim(leases=[], lacking=lacking, due_seconds=due_seconds)

    def upcoming(self, num: int, capabilities: Iterable[str], run: str) -> list[bytes]:
        """Return the encoded tasks of up to ``num`` rollouts that are likely to be leased next."""
        return cast("list[bytes]", self._upcoming(self._keys, [num, run, *capabilities]))

    def heartbeat(
        self, worker: str, about: bytes, leases: Iterable[tuple[Lease, str]], lease_seconds: float
    ) -> HeartbeatAnswer:
        """Renew (lease, status) pairs and show the worker."""
        flat = [field for lease, status in leases for field in (lease.rollout_id, lease.token, status)]
        own, *answers = cast("list[bytes]", self._heartbeat(self._keys, [_ms(lease_seconds), worker, about, *flat]))
        return HeartbeatAnswer(
            is_draining=own == b"drain", leases=[cast("LeaseAnswer", answer.decode()) for answer in answers]
        )

    def checkpoint(self, lease: Lease, name: str) -> str | Refusal | None:
        """Record where the attempt may go on; return the name that this one replaces, None where it is the first."""
        answer = cast("_Answer", self._checkpoint(self._keys, [lease.rollout_id, lease.token, name]))
        return _refusal(*answer) or answer[1].decode() or None

    def settle(self, reports: Sequence[Report], delays: Sequence[float]) -> list[Refusal | None]:
        """End leases; ``delays`` are seconds before each retry. Return None where the report was accepted."""
        flat = [
            field
            for report, delay in zip(reports, delays, strict=True)
            for field in _report_fields(report, delay_seconds=delay)
        ]
        answers, num_unfinished = cast("tuple[list[_Answer], int]", self._settle(self._keys, [*self._rules, *flat]))
        self._finish(num_unfinished)
        return [_refusal(*answer) for answer in answers]

    def reap(self) -> int:
        """Take back lapsed leases; return how many. Go on with large groups that other calls left unfinished."""
        return self._reap_once()[0]

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel what is not final; return the number of rollouts."""
        num, num_unfinished = cast("list[int]", self._cancel(self._keys, list(group_ids)))
        self._finish(num_unfinished)
        return num

    def retry_dead(self, rollout_ids: Sequence[str]) -> list[str]:
        """Queue dead rollouts of open groups again; return '' (done), 'closed' (its group) or 'unknown' (not dead)."""
        return [answer.decode() for answer in cast("list[bytes]", self._dead(self._keys, ["retry", *rollout_ids]))]

    def drop_dead(self, rollout_ids: Sequence[str]) -> int:
        """Forget dead rollouts; return how many there were."""
        return cast("list[bytes]", self._dead(self._keys, ["drop", *rollout_ids])).count(b"")

    def pause(self, run: str, why: str, *, leased_too: bool, if_it_goes: bool) -> bool:
        """Lease nothing more of a run, pause its leased rollouts if asked; return False where it was paused before."""
        return self._run(self._keys, ["pause", run, why, int(leased_too), int(if_it_goes)]) == 1

    def resume(self, run: str, why: str) -> bool:
        """Lease rollouts of a run again; return False where it is not paused for this reason. Empty: any reason."""
        return self._run(self._keys, ["resume", run, why]) == 1

    def serve(self, run: str, number: int) -> None:
        """Make rollouts claimable that wait for this policy version."""
        self._run(self._keys, ["serve", run, number])

    def share(self, run: str, weight: float | None, quota: int | None) -> None:
        """Change how a run is served beside others; a quota of 0 removes the limit."""
        self._run(self._keys, ["share", run, "" if weight is None else repr(weight), "" if quota is None else quota])

    def drain(self, workers: Sequence[str]) -> list[str]:
        """Let workers finish what they run and exit; return the names that the queue knows."""
        return [name.decode() for name in cast("list[bytes]", self._drain(self._keys, list(workers)))]

    def _reap_once(self) -> tuple[int, int]:
        num_lapsed, num_unfinished = cast(
            "list[int]", self._reap(self._keys, [*self._rules, _ms(self.settings.lease_seconds)])
        )
        return num_lapsed, num_unfinished

    def _finish(self, num_unfinished: int) -> None:
        """Go on with large groups, a slice each call; where this process dies, claims and waiting clients go on."""
        while num_unfinished:
            _, num_unfinished = self._reap_once()

    def inspect(self, view: str, *arguments: str | int) -> bytes:
        """Read a view of the state; writes nothing. See ``QueueInspector``."""
        return cast("bytes", self._inspect(self._keys, [view, *arguments]))

    def _gated(self, script: _Call) -> _Call:
        """Return a script that decides, as a function that first restores the index where Redis may have forgotten."""

        def call(names: Sequence[str], arguments: Sequence[str | int | bytes | float]) -> object:
            waits = _BACKOFF.delays(self.settings.retry_seconds)
            while True:
                try:
                    return script(names, arguments)
                except ResponseError as error:
                    if not str(error).startswith("RESTORING"):
                        raise
                if self._restore():
                    continue
                if (wait := next(waits, None)) is None:
                    raise RedisUnreachableError(
                        "queue: expected its index to be restored after Redis changed, found another process at work"
                        f" on it for {self.settings.retry_seconds:g} s; see shipper.log, or run 'agent-layer store"
                        " reindex'"
                    )
                time.sleep(wait)

        return call

    def _restore(self) -> bool:
        try:
            return restore_index(self.redis, self.keys, open_objects(self.settings))
        except (UnreachableError, CorruptRecordError) as error:
            raise RedisUnreachableError(f"queue: cannot decide before its index is restored: {error}") from error


def queue_keys(keys: Keys) -> list[str]:
    """Return the KEYS with which every script of the queue is called."""
    names = [keys.queue(), keys.outbox, keys.group(""), keys.trajectory(""), keys.dead, keys.policies("")]
    return [*names, keys.clock]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _group_fields(group_id: str, task: Task) -> tuple[str | int | bytes, ...]:
    whose = (group_id, task.run, task.id, task.task_type, task.split)
    sizes = (task.group_size, num_launched(task), task.partial)
    start = "" if task.from_policy is None else task.from_policy
    expected = "" if task.expected_seconds is None else _ms(task.expected_seconds)
    return (*whose, *sizes, ",".join(required_capabilities(task)), task.priority, start, expected, encode(task))


def _report_fields(report: Report, *, delay_seconds: float) -> tuple[str | int, ...]:
    lease, what = report.lease, (report.ending, report.cause or "", report.error)
    return (lease.rollout_id, lease.token, *what, _ms(delay_seconds), int(report.usable))


def _claim(rows: Iterable[_LeaseFields], lacking: list[str]) -> Claim:
    leases: list[Lease] = []
    unreadable: list[tuple[HeldRollout, str]] = []
    for rollout_id, token, attempt, group_id, task, queued_ms, checkpoint in rows:
        held = HeldRollout(
            token=token.decode(),
            rollout_id=rollout_id.decode(),
            attempt=attempt,
            group_id=group_id.decode(),
            checkpoint=checkpoint.decode() or None,
        )
        try:
            known = cast("Task", decode(task))
        except CorruptRecordError as error:
            unreadable.append((held, str(error.__cause__)[:_MAX_WHY_LENGTH]))
        else:
            leases.append(Lease(**msgspec.structs.asdict(held), task=known, queued_seconds=queued_ms / 1000))
    return Claim(leases=leases, unreadable=unreadable, lacking=lacking)


def _refusal(answer: bytes, status: bytes, worker: bytes, attempt: int) -> Refusal | None:
    if answer == b"yes":
        return None
    return Refusal(status=status.decode(), worker=worker.decode(), attempt=attempt)
