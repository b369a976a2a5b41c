"""This file holds what of stored records lives: the dead are left out, also of the lists of groups."""

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from redis import Redis

from agent_layer.schema.codec import decode, encode
from agent_layer.schema.group import Group
from agent_layer.schema.segment import SegmentFooter
from agent_layer.store.index import owner_hash
from agent_layer.store.keys import Keys
from agent_layer.store.pages import pages_of
from agent_layer.store.segments import StoredRecord
from agent_layer.store.summary import read_record

__all__ = ["deaths_of", "is_group", "living_records", "names_in", "owners_in"]

_PAGE = 1_000


def is_group(owner: str) -> bool:
    """Whether an owner is a group."""
    return owner.startswith("group:")


def names_in(found: object) -> set[str]:
    """Segment names, as Redis gave them."""
    return {name.decode() for name in cast("Iterable[bytes]", found)}


def owners_in(footer: SegmentFooter) -> set[str]:
    """All owners who are named in a segment, members of its groups included."""
    groups = [cast("Group", decode(entry.record)) for entry in footer.groups]
    return {chunk.owner for chunk in footer.chunks}.union(*(group.trajectory_ids for group in groups))


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
    records = [StoredRecord(read_record(content), content) for content in dict.fromkeys(contents)]
    return _among_the_living(records, dead) if is_group(owner) else records


def _among_the_living(records: Iterable[StoredRecord], dead: frozenset[str]) -> list[StoredRecord]:
    kept: dict[bytes, StoredRecord] = {}
    for one in records:
        group = cast("Group", one.record)
        left = [member for member in group.trajectory_ids if member not in dead]
        if left == group.trajectory_ids:
            kept[one.content] = one
        elif left:
            shorter = msgspec.structs.replace(group, trajectory_ids=left)
            content = encode(shorter)
            kept[content] = StoredRecord(shorter, content)
    return list(kept.values())
