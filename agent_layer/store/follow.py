"""This file holds how closed groups reach a consumer: whole, in order of closing, again until it acknowledges them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.codec import decode
from agent_layer.schema.group import Group
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.schema.task import Split
from agent_layer.schema.trajectory import Trajectory
from agent_layer.store.index import Index
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.reading import read_trajectories

__all__ = ["Consumer", "Follower", "GroupDelivery"]

_BLOCK_MS = 500
"""Longest sleep between two looks at ``stop``; whatever is committed ends it at once."""


class Consumer(msgspec.Struct, frozen=True):
    """Who follows what. What it acknowledges is remembered under its name and run."""

    name: str
    run: str
    split: Split | None = "train"
    """None: both."""


@dataclass(frozen=True)
class GroupDelivery:
    """One closed group with all of its accepted trajectories."""

    group: Group
    trajectories: list[Trajectory]
    """[num_accepted], in member order; shorter than ``group.group_size`` when some rollouts died or were deleted."""
    ack: Callable[[], object]
    """Call it when the group need never come again; twice does no harm."""


class Follower:
    """Hands each closed group to a consumer once; a new follower begins again with those not acknowledged."""

    def __init__(self, index: Index, objects: ObjectStore, consumer: Consumer) -> None:
        self._index = index
        self._objects = objects
        self._consumer = consumer
        self._closed_key = index.keys.closed_groups(consumer.run)
        self._acked_key = index.keys.acked(consumer.run, consumer.name)
        self._taken: set[str] = set()
        self._num_looked_at = 0
        """Closed groups at the last look that left nothing for later."""

    def take(self) -> Iterator[GroupDelivery]:
        """Give the groups that are ready, the one that closed first before the others, without waiting for more.

        A group whose trajectories are not all in the index yet (while that is rebuilt) is left for later.
        """
        num_closed = self._index.redis.zcard(self._closed_key)
        if num_closed == self._num_looked_at:
            return
        num_postponed = 0
        for group_id in self._open_ids():
            group = self._read_group(group_id)
            if not self._is_whole(group):
                num_postponed += 1
                continue
            self._taken.add(group_id)
            if self._consumer.split in (None, group.split):
                yield self._deliver(group)
        self._num_looked_at = 0 if num_postponed else num_closed

    def follow(self, wait_seconds: float | None, stop: Callable[[], bool]) -> Iterator[GroupDelivery]:
        """Give groups as they close, until none came for ``wait_seconds`` or ``stop`` says so."""
        deadline = _deadline(wait_seconds)
        while not stop():
            event = self._newest_event()
            for delivery in self.take():
                yield delivery
                deadline = _deadline(wait_seconds)
                if stop():
                    return
            left_ms = min(_BLOCK_MS, (deadline - time.monotonic()) * 1_000)
            if left_ms < 1:
                return
            self._index.redis.xread({self._index.keys.events: event}, count=1, block=int(left_ms))

    def _newest_event(self) -> bytes:
        newest = cast("list[tuple[bytes, object]]", self._index.redis.xrevrange(self._index.keys.events, count=1))
        return newest[0][0] if newest else b"0-0"

    def _open_ids(self) -> list[str]:
        """Groups that are closed but neither acknowledged nor taken, by time of closing."""
        found = cast("list[bytes]", self._index.redis.zdiff([self._closed_key, self._acked_key]))
        return [group_id for one in found if (group_id := one.decode()) not in self._taken]

    def _read_group(self, group_id: str) -> Group:
        stored = self._index.redis.get(self._index.keys.group(group_id))
        if isinstance(stored, bytes) and isinstance(group := decode(stored), Group):
            return group
        raise CorruptRecordError(
            f"group {group_id!r}: expected its record in the index, found {stored!r}; run 'agent-layer store check'"
        )

    def _is_whole(self, group: Group) -> bool:
        kept = self._kept(group)
        rows = self._index.rows(kept)
        is_whole = [row.accepted and row.status in FINAL_STATUSES for row in rows]
        return len(rows) == len(kept) and all(is_whole)

    def _kept(self, group: Group) -> list[str]:
        """Its members but for those that were deleted."""
        are_dead = self._index.are_dead(group.trajectory_ids)
        return [one for one, is_dead in zip(group.trajectory_ids, are_dead, strict=True) if not is_dead]

    def _deliver(self, group: Group) -> GroupDelivery:
        trajectories = read_trajectories(self._index, self._objects, self._kept(group))
        return GroupDelivery(group, trajectories, lambda: self._index.redis.sadd(self._acked_key, group.group_id))


def _deadline(wait_seconds: float | None) -> float:
    return float("inf") if wait_seconds is None else time.monotonic() + wait_seconds
