"""Tombstones: objects that record deletions, so that no rebuild restores a deleted owner; and filters that apply them.

They are stored under ``{namespace}/dead/`` and read before segments. A tombstone names its owner by a hash only.
Deleted trajectories are dropped from groups and training batches, too.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from typing import TypeVar, cast

import msgspec
from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys, ObjectStore, batched
from agent_layer.recorder import frame, read_frames
from agent_layer.schema import (
    Group,
    SegmentFooter,
    Tombstone,
    TrainedBatch,
    decode,
    encode,
    new_id,
    record_owner,
    trajectory_owner,
)
from agent_layer.store.segments.format import StoredRecord
from agent_layer.store.segments.summary import read_record

_PAGE = 1_000

T = TypeVar("T")

_ENDING = ".dead"


def owner_hash(owner: str) -> str:
    """Name of a deleted owner in tombstones and in the index."""
    return sha1(owner.encode(), usedforsecurity=False).hexdigest()


def decode_names(found: object) -> set[str]:
    """Segment names, as Redis gave them."""
    return {name.decode() for name in cast("Iterable[bytes]", found)}


def named_owners(footer: SegmentFooter) -> set[str]:
    """All owners that a segment names, including members of its groups and training batches."""
    members = (member_ids(entry.record) for entry in (*footer.groups, *footer.batches))
    return {chunk.owner for chunk in footer.chunks}.union(*(map(trajectory_owner, ids) for ids in members))


def member_ids(record: bytes) -> list[str]:
    """Ids of the trajectories that an encoded group or trained batch names."""
    match decode(record):
        case Group(trajectory_ids=trajectory_ids):
            return trajectory_ids
        case TrainedBatch(rollouts=rollouts):
            return [rollout.trajectory_id for rollout in rollouts]
        case _:
            return []


def drop_deleted_rollouts(batch: TrainedBatch, dead: Collection[str]) -> TrainedBatch:
    """The same batch without the rollouts of dead owners, which are counted."""
    rollouts = [rollout for rollout in batch.rollouts if trajectory_owner(rollout.trajectory_id) not in dead]
    num_deleted = batch.num_deleted + len(batch.rollouts) - len(rollouts)
    return msgspec.structs.replace(batch, rollouts=rollouts, num_deleted=num_deleted)


def deletion_times(redis: Redis, keys: Keys, owners: Iterable[str]) -> dict[str, float]:
    """Times of deletion of the deleted ones among these owners, in seconds since the epoch."""
    deaths: dict[str, float] = {}
    for page in batched(owners, _PAGE):
        times = cast("list[bytes | None]", redis.hmget(keys.dead, [owner_hash(one) for one in page]))
        deaths |= {owner: float(at) for owner, at in zip(page, times, strict=True) if at is not None}
    return deaths


def drop_deleted(owner: str, contents: Sequence[bytes], dead: Iterable[str]) -> list[StoredRecord]:
    """Read an owner's records, each once; none if it was deleted, or is a group that lost all of its members."""
    dead = frozenset(dead)
    if owner in dead:
        return []
    read = (StoredRecord(read_record(one), one) for one in dict.fromkeys(contents))
    living = (_shorten(one, dead) for one in read if record_owner(one.record) == owner)
    return list({one.content: one for one in living if one}.values())


def _shorten(stored: StoredRecord, dead: Collection[str]) -> StoredRecord | None:
    """A record without deleted members; None for a group that lost all of them."""
    match stored.record:
        case Group(trajectory_ids=[_, *_] as members) as group:
            left = [member for member in members if trajectory_owner(member) not in dead]
            shorter = msgspec.structs.replace(group, trajectory_ids=left) if left else None
        case TrainedBatch() as batch:
            shorter = drop_deleted_rollouts(batch, dead)
        case _:
            return stored
    if shorter is None:
        return None
    return stored if shorter == stored.record else StoredRecord(shorter, encode(shorter))


def write_tombstones(keys: Keys, objects: ObjectStore, owners: Sequence[str], reason: str) -> float:
    """Store tombstones of these owners; return the time. From then on no rebuild restores them.

    Args:
        keys: of the namespace.
        objects: of the namespace.
        owners: see ``owner_text``.
        reason: such as ``deleted`` or ``expired``; it must not name a person.
    """
    now = time.time()
    stones = [Tombstone(owner_hash=owner_hash(owner), deleted_at=now, reason=reason) for owner in owners]
    day = datetime.fromtimestamp(now, UTC)
    key = f"{keys.namespace}/dead/{day:%Y/%m/%d}/{new_id()}{_ENDING}"
    objects.put(key, b"".join(frame(encode(stone)) for stone in stones))
    return now


def list_tombstones(keys: Keys, objects: ObjectStore) -> Iterator[Tombstone]:
    """Read all tombstones; other objects beside them are skipped.

    Raises: CorruptRecordError: some cannot be read; without them, deleted owners would come back.
    """
    for key in objects.list(f"{keys.namespace}/dead/"):
        if not key.endswith(_ENDING):
            continue
        contents, num_torn = read_frames(objects.get(key))
        if num_torn:
            raise CorruptRecordError(
                f"tombstones {key}: expected whole frames, found {num_torn} bytes that are none; restore the object"
                " from a copy, or the owners that it names would come back"
            )
        for content in contents:
            stone = decode(content)
            if isinstance(stone, Tombstone):
                yield stone


def load_tombstones(redis: Redis, keys: Keys, stones: Iterable[Tombstone]) -> None:
    """Enter tombstones in the index, before it reads any segment."""
    times = {stone.owner_hash: repr(stone.deleted_at) for stone in stones}
    if times:
        redis.hset(keys.dead, mapping={**times})


def drop_deleted_owners(redis: Redis, keys: Keys, records_by_owner: Mapping[str, T]) -> dict[str, T]:
    """Drop the records of deleted owners, so that their bytes are not stored again."""
    deaths = deletion_times(redis, keys, records_by_owner)
    return {owner: records for owner, records in records_by_owner.items() if owner not in deaths}
