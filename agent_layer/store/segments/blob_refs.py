"""References to blobs, from before a blob is stored until no trajectory needs it and it is removed.

1. A shipper makes its trajectories *hold* a blob before it stores it. Content with a blob already gets the same name;
   if a committed segment refers to that blob, it need not be stored again. Otherwise the name is new.
2. Blobs are stored, then the segment that refers to them, then it is committed.
3. Deletion releases references. A blob that lost its last reference is noted as unneeded. Its remover first releases
   its name, in the script that finds that no trajectory holds it: from then on the same content gets a new name.
   However late a removal or a repeated one arrives, it never hits a blob that a trajectory needs.
4. A shipper that stores a blob for a trajectory that was deleted meanwhile finds out at its commit, which notes the
   blob again.

A rebuild of the index adds references and drops none. Blobs that Redis does not know (it was lost before a log was
committed) are orphans: they are removed once they are old, and only when every segment is indexed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

import msgspec
from redis import Redis

from agent_layer.infra import Keys, ObjectStore, batched, durable_writes
from agent_layer.schema import Content, ContentRef, LogRecord, decode, encode
from agent_layer.store.segments.blobs import BlobLimits, blob_key, blob_name, is_large, pack
from agent_layer.store.segments.format import StoredRecord, list_segments, segment_name
from agent_layer.store.segments.outline import Outline
from agent_layer.store.segments.scripts import HOLD_BLOBS, RELEASE_UNNEEDED

_AT_ONCE = 256
"""Largest number of names per script call; more would block Redis for longer."""
_NUM_AT_ONCE = 8


def store_contents(
    redis: Redis,
    keys: Keys,
    objects: ObjectStore,
    records_by_owner: Mapping[str, Iterable[StoredRecord]],
    limits: BlobLimits,
) -> dict[str, list[StoredRecord]]:
    """Drop repeated contents of each trajectory, and store the large ones and media as blobs.

    Returns: the records that are left for the segment, in order, with references where blobs were made.
    """
    kept = {owner: list(_without_repeats(records)) for owner, records in records_by_owner.items()}
    contents = (one.record for records in kept.values() for one in records if type(one.record) is Content)
    large = [one for one in contents if is_large(one, limits)]
    if not large:
        return kept
    held = {_identity(one): blob for one, blob in zip(large, _hold(redis, keys, large), strict=True)}
    bodies = {blob.name: one.body for one in large if not (blob := held[_identity(one)]).is_stored}

    def put(name: str) -> None:
        objects.put(blob_key(keys, name), pack(bodies[name]))

    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for _ in threads.map(put, bodies):
            pass
    return {
        owner: [_refer(one, blob.name) if (blob := held.get(_identity(one.record))) else one for one in records]
        for owner, records in kept.items()
    }


def remove_unneeded(redis: Redis, keys: Keys, objects: ObjectStore, orphans: Iterable[str] = ()) -> list[str]:
    """Remove the blobs that no trajectory needs; return their names. Deletion and garbage collection call it.

    Args:
        redis: of the namespace.
        keys: of the namespace.
        objects: of the namespace.
        orphans: results of ``find_orphans``, to remove, too.
    """
    noted = {name.decode() for name in cast("set[bytes]", redis.smembers(keys.unneeded))}
    found = sorted(noted.union(orphans))
    # a released name that Redis forgot to strike out would be given to new contents, without its object
    names = durable_writes(redis, keys).complete(redis, lambda: _removable(redis, keys, found, is_looking=False))
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for _ in threads.map(objects.delete, [blob_key(keys, name) for name in names]):
            pass
    for page in batched(names, _AT_ONCE):
        redis.srem(keys.unneeded, *page)
    return names


def find_orphans(redis: Redis, keys: Keys, objects: ObjectStore, names: Iterable[str]) -> list[str]:
    """Return the blobs that no trajectory needs; none while a segment is not indexed, because it might need them.

    Args:
        redis: of the namespace.
        keys: of the namespace.
        objects: of the namespace.
        names: of blobs stored longer ago than any shipper takes from storing one to committing its segment.
    """
    committed = {name.decode() for name in cast("list[bytes]", redis.hkeys(keys.segments))}
    if not committed.issuperset(filter(None, map(segment_name, list_segments(keys, objects)))):
        return []
    return _removable(redis, keys, names, is_looking=True)


def _without_repeats(records: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
    seen: set[tuple[str, str]] = set()
    for one in records:
        if type(one.record) is Content:
            name = one.record.trajectory_id, one.record.hash
            if name in seen:
                continue
            seen.add(name)
        yield one


def _identity(record: LogRecord | Outline) -> tuple[str, str] | None:
    """Identity of a content: equal for repeated ones; None for other records."""
    return (record.trajectory_id, record.hash) if isinstance(record, Content) else None


class _BlobRef(NamedTuple):
    """The blob of a content."""

    name: str
    is_stored: bool
    """Or must not be stored, because its owner was deleted."""


def _hold(redis: Redis, keys: Keys, contents: Sequence[Content]) -> list[_BlobRef]:
    script = HOLD_BLOBS.load(redis)
    held: list[_BlobRef] = []
    for page in batched(contents, _AT_ONCE):
        names = [blob_name(one.body) for one in page]
        requests = [(one.trajectory_id, name.partition("-")[0], name) for one, name in zip(page, names, strict=True)]
        given = cast("list[bytes]", script(keys=[keys.name()], args=[msgspec.msgpack.encode(requests)]))
        answers = (one.decode().split() for one in given)
        held += [_BlobRef(name, is_stored == "1") for name, is_stored in answers]
    return held


def _refer(one: StoredRecord, blob: str) -> StoredRecord:
    whole = cast("Content", decode(one.content))  # with all that only a newer reader would know
    reference = ContentRef(
        trajectory_id=whole.trajectory_id,
        hash=whole.hash,
        blob=blob,
        size_bytes=len(whole.body),
        schema_version=whole.schema_version,
        unknown=whole.unknown,
    )
    return StoredRecord(reference, encode(reference))


def _removable(redis: Redis, keys: Keys, names: Iterable[str], *, is_looking: bool) -> list[str]:
    script = RELEASE_UNNEEDED.load(redis)
    mode = "0" if is_looking else "1"
    found: list[str] = []
    for page in batched(names, _AT_ONCE):
        found += [name.decode() for name in cast("list[bytes]", script(keys=[keys.name()], args=[mode, *page]))]
    return found
