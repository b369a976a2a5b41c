"""What the objects of a store hold, and how records get there without a shipper."""

from collections import defaultdict
from collections.abc import Iterator

from agent_layer.engines.policies import list_policies
from agent_layer.schema.codec import LogRecord, encode, record_owner
from agent_layer.schema.ids import new_id
from agent_layer.store import Index, Store
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, find_frames, read_footer, segment_key, unpack
from agent_layer.store.segments.tombstones import write_tombstones

__all__ = [
    "collect_answers",
    "damage",
    "keys_that_hold",
    "lose_index",
    "mark_deleted",
    "put_segment",
    "segment_keys",
    "stored_owners",
    "stored_records",
    "write_segment",
]


def put_segment(store: Store, *records: LogRecord, name: str | None = None) -> str:
    """Store a segment that the index does not know; return its name."""
    owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
    for record in records:
        owned[record_owner(record)].append(StoredRecord(record, encode(record)))
    name = name or new_id()
    store.objects.put(segment_key(store.keys, name), build_segment(name, owned)[0])
    return name


def write_segment(store: Store, *records: LogRecord, name: str | None = None) -> str:
    """Store a segment and index it, as the shipper does; return its name."""
    name = put_segment(store, *records, name=name)
    index_segment(store.redis, store.keys, store.objects, name)
    return name


def mark_deleted(store: Store, *owners: str) -> None:
    """Do what a deletion does before it removes any bytes."""
    tombstones = write_tombstones(store.keys, store.objects, owners, "deleted")
    apply_tombstones(store.redis, store.keys, owners, tombstones)


def damage(store: Store, trajectory_id: str) -> None:
    """Change a byte of a trajectory, so that its checksum no longer holds."""
    for segment, chunk in Index(store.redis, store.keys).chunks(trajectory_id):
        key = segment_key(store.keys, segment)
        body = bytearray(store.objects.get(key))
        body[chunk.offset + chunk.size_bytes // 2] ^= 0xFF
        store.objects.put(key, bytes(body))


def lose_index(store: Store) -> None:
    """Do what FLUSHALL does, to the keys of one test."""
    store.redis.delete(*store.redis.keys(store.keys.name("*")))


def segment_keys(store: Store) -> list[str]:
    return list(store.objects.list(f"{store.keys.namespace}/seg/"))


def stored_records(store: Store) -> Iterator[bytes]:
    """Yield every record of every segment in its stored form; one that is stored twice comes twice."""
    for key in segment_keys(store):
        content = store.objects.get(key)
        for offset, size in find_frames(content)[:-1]:  # without the footer
            yield from unpack(content[offset : offset + size], size, key)


def stored_owners(store: Store) -> set[str]:
    """Return the owners of all stored records: trajectories, groups, runs."""
    footers = [read_footer(store.objects, key).footer for key in segment_keys(store)]
    return {chunk.owner for footer in footers for chunk in footer.chunks}


def keys_that_hold(store: Store, text: str) -> Iterator[str]:
    """Yield keys of objects in which a text occurs, in raw bytes or in unpacked frames."""
    for key in store.objects.list(""):
        content = store.objects.get(key)
        frames = find_frames(content) if key.endswith(".seg") else []
        unpacked = [one for at, size in frames for one in unpack(content[at : at + size], size, key)]
        if any(text.encode() in one for one in (content, *unpacked)):
            yield key


def collect_answers(store: Store) -> tuple[object, ...]:
    """Return all that a store answers, for a comparison: rows, trajectories, groups and policy versions."""
    page = store.query(limit=1_000)
    return (
        page.items,
        {row.trajectory_id: store.get(row.trajectory_id) for row in page.items},
        [
            (one.group, [t.trajectory_id for t in one.trajectories])
            for one in store.follow(new_id(), "r", wait_seconds=0)
        ],
        list_policies(store.redis, store.keys, "r"),
    )
