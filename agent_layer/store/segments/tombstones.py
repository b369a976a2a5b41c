"""This file holds what of stored records lives: the dead are left out, also of groups and of trained batches."""

from collections.abc import Collection, Iterable, Sequence
from typing import cast

import msgspec
from redis import Redis

from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.group import Group
from agent_layer.schema.segment import SegmentFooter
from agent_layer.store.index import owner_hash
from agent_layer.store.keys import Keys
from agent_layer.store.pages import pages_of
from agent_layer.store.segments import StoredRecord
from agent_layer.store.summary import read_record

__all__ = ["deaths_of", "is_batch", "is_group", "leave_out", "living_records", "members_of", "names_in", "owners_in"]

_PAGE = 1_000


def is_group(owner: str) -> bool:
    """Whether an owner is a group."""
    return owner.startswith("group:")


def is_batch(owner: str) -> bool:
    """Whether an owner is a step of training."""
    return owner.startswith("batch:")


def names_in(found: object) -> set[str]:
    """Segment names, as Redis gave them."""
    return {name.decode() for name in cast("Iterable[bytes]", found)}


def owners_in(footer: SegmentFooter) -> set[str]:
    """All owners who are named in a segment, members of its groups and of its trained batches included."""
    members = (members_of(entry.record) for entry in (*footer.groups, *footer.batches))
    return {chunk.owner for chunk in footer.chunks}.union(*members)


def members_of(record: bytes) -> list[str]:
    """Ids of the trajectories that an encoded group or trained batch names."""
    match decode(record):
        case Group(trajectory_ids=trajectory_ids):
            return trajectory_ids
        case TrainedBatch(rollouts=rollouts):
            return [rollout.trajectory_id for rollout in rollouts]
        case _:
            return []


def leave_out(batch: TrainedBatch, dead: Collection[str]) -> TrainedBatch:
    """The same batch without the dead, who are counted."""
    rollouts = [rollout for rollout in batch.rollouts if rollout.trajectory_id not in dead]
    num_deleted = batch.num_deleted + len(batch.rollouts) - len(rollouts)
    return msgspec.structs.replace(batch, rollouts=rollouts, num_deleted=num_deleted)


def deaths_of(redis: Redis, keys: Keys, owners: Iterable[str]) -> dict[str, float]:
    """When those of the owners died who did, in seconds since the epoch."""
    deaths: dict[str, float] = {}
    for page in pages_of(owners, _PAGE):
        times = cast("list[bytes | None]", redis.hmget(keys.dead, [owner_hash(one) for one in page]))
        deaths |= {owner: float(at) for owner, at in zip(page, times, strict=True) if at is not None}
    return deaths


def living_records(owner: str, contents: Sequence[bytes], dead: Iterable[str]) -> list[StoredRecord]:
    """Read an owner's records, each once; none where it is dead, or a group that lost all of its members."""
    dead = frozenset(dead)
    if owner in dead:
        return []
    living = (_shorten(StoredRecord(read_record(one), one), dead) for one in dict.fromkeys(contents))
    return list({one.content: one for one in living if one}.values())


def _shorten(stored: StoredRecord, dead: Collection[str]) -> StoredRecord | None:
    """A record without the dead; None for a group that lost all of its members to them."""
    match stored.record:
        case Group(trajectory_ids=[_, *_] as members) as group:
            left = [member for member in members if member not in dead]
            shorter = msgspec.structs.replace(group, trajectory_ids=left) if left else None
        case TrainedBatch() as batch:
            shorter = leave_out(batch, dead)
        case _:
            return stored
    if shorter is None:
        return None
    return stored if shorter == stored.record else StoredRecord(shorter, encode(shorter))
