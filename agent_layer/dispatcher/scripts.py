"""This file holds the Lua scripts of the queue as typed functions. Each call is one atomic step on the server."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec
from redis import Redis
from redis.commands.core import Script

from agent_layer.dispatcher.records import (
    Beat,
    Claim,
    GroupState,
    Lease,
    QueueStats,
    Report,
    RolloutState,
    WorkerState,
    needs_of,
)
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.task import Task
from agent_layer.store.keys import Keys

__all__ = ["Refusal", "Scripts", "View"]

T = TypeVar("T")

View: TypeAlias = Literal["groups", "rollouts", "workers", "dead", "stats"]

_LeaseFields: TypeAlias = tuple[bytes, int, int, bytes, bytes, int]
_Answer: TypeAlias = tuple[bytes, bytes, bytes, int]

_LUA = Path(__file__).parent / "lua"
_SHARED = (_LUA / "queue.lua").read_text()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a report was not taken."""

    status: str
    """Of the rollout; 'unknown' when the dispatcher has none of that name."""
    worker: str
    attempt: int
    """The newest attempt."""


class Scripts:
    """The atomic steps of one namespace's queue. Seconds go in and come out; the server's clock counts."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._keys = [keys.queue(), keys.outbox, keys.group(""), keys.trajectory(""), keys.dead]
        self._add = _load(redis, "add")
        self._claim = _load(redis, "claim")
        self._heartbeat = _load(redis, "heartbeat")
        self._settle = _load(redis, "settle")
        self._reap = _load(redis, "reap")
        self._cancel = _load(redis, "cancel")
        self._look = _load(redis, "look")

    def add(self, groups: Sequence[tuple[str, Task]], max_queued: int) -> list[bool] | int:
        """Queue (group id, task) pairs; True where the group is new. Or the number queued, if that leaves no room."""
        flat = [field for group_id, task in groups for field in _group_fields(group_id, task)]
        added = cast("list[int]", self._add(self._keys, [max_queued, *flat]))
        return added[1] if added[:1] == [-1] else [one == 1 for one in added]

    def claim(
        self, worker: str, num: int, capabilities: Iterable[str], *, lease_seconds: float, max_attempts: int, run: str
    ) -> Claim:
        """Lease up to ``num`` rollouts of a run, or of any when it is empty."""
        arguments = [num, _ms(lease_seconds), max_attempts, worker, run, *capabilities]
        leases, wake_id, due_ms = cast("tuple[list[_LeaseFields], bytes, int]", self._claim(self._keys, arguments))
        return Claim(
            leases=[_lease(*fields) for fields in leases],
            wake_id=wake_id.decode(),
            due_seconds=due_ms / 1000 if due_ms >= 0 else None,
        )

    def heartbeat(
        self, worker: str, about: bytes, leases: Iterable[tuple[Lease, str]], lease_seconds: float
    ) -> list[Beat]:
        """Renew (lease, status) pairs and show the worker."""
        flat = [field for lease, status in leases for field in (lease.rollout_id, lease.token, status)]
        answers = cast("list[bytes]", self._heartbeat(self._keys, [_ms(lease_seconds), worker, about, *flat]))
        return [cast("Beat", answer.decode()) for answer in answers]

    def settle(self, reports: Sequence[Report], delays: Sequence[float], max_attempts: int) -> list[Refusal | None]:
        """End leases; ``delays`` are seconds before each retry. None where the report was taken."""
        flat = [
            field
            for one, delay_seconds in zip(reports, delays, strict=True)
            for field in (one.lease.rollout_id, one.lease.token, one.ending, one.error, _ms(delay_seconds))
        ]
        answers = cast("list[_Answer]", self._settle(self._keys, [max_attempts, *flat]))
        return [_refusal(*answer) for answer in answers]

    def reap(self, max_attempts: int) -> int:
        """Take back lapsed leases; how many."""
        return cast("int", self._reap(self._keys, [max_attempts]))

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel what is not final; how many rollouts."""
        return cast("int", self._cancel(self._keys, list(group_ids)))

    def groups(self, group_ids: Sequence[str], limit: int) -> list[GroupState]:
        """Those groups, or the oldest open ones when none is named."""
        return self._see(list[GroupState], "groups", limit, *group_ids)

    def rollouts(self, group_ids: Sequence[str], limit: int) -> list[RolloutState]:
        """Rollouts of those groups, or of the oldest open ones when none is named."""
        return self._see(list[RolloutState], "rollouts", limit, *group_ids)

    def dead(self, limit: int) -> list[RolloutState]:
        """Rollouts that were given up, newest first."""
        return self._see(list[RolloutState], "dead", limit)

    def workers(self) -> list[WorkerState]:
        """Workers by when they last showed themselves."""
        return self._see(list[WorkerState], "workers")

    def stats(self) -> QueueStats:
        """Counts over everything."""
        return self._see(QueueStats, "stats")

    def _see(self, form: type[T], what: View, *arguments: str | int) -> T:
        packed = cast("bytes", self._look(self._keys, [what, *arguments]))
        return msgspec.msgpack.decode(packed, type=form)


def _load(redis: Redis, name: str) -> Script:
    return redis.register_script(_SHARED + (_LUA / f"{name}.lua").read_text())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _group_fields(group_id: str, task: Task) -> tuple[str | int | bytes, ...]:
    needs = ",".join(needs_of(task))
    whose = (group_id, task.run, task.id, task.task_type, task.split)
    return (*whose, task.group_size, needs, task.priority, encode(task))


def _lease(rollout_id: bytes, token: int, attempt: int, group_id: bytes, task: bytes, queued_ms: int) -> Lease:
    return Lease(
        token=str(token),
        rollout_id=rollout_id.decode(),
        attempt=attempt,
        group_id=group_id.decode(),
        task=cast("Task", decode(task)),
        queued_seconds=queued_ms / 1000,
    )


def _refusal(answer: bytes, status: bytes, worker: bytes, attempt: int) -> Refusal | None:
    if answer == b"yes":
        return None
    return Refusal(status=status.decode(), worker=worker.decode(), attempt=attempt)
