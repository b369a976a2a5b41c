"""This file holds a store over each kind of object store, and the way records get into it without a shipper."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.codec import LogRecord, encode, owner_of
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from agent_layer.store.rebuild import index_segment, read_segment
from agent_layer.store.segments import StoredRecord, build_segment, segment_key
from agent_layer.store.tombstones import leave_out_dead


@pytest.fixture
def store(objects_settings: Settings) -> Store:
    """An empty store."""
    return open_store(objects_settings)


def _compact(store: Store, *, only_dead: bool) -> None:
    """Stands in for compaction until that is merged: rewrites each segment that holds something dead."""
    assert only_dead
    redis, keys = store.redis, store.keys
    for name in sorted(one.decode() for one in redis.smembers(keys.rewrite)):
        key = segment_key(keys, name)
        try:
            records = read_segment(store.objects, key).records
        except CorruptRecordError:
            continue
        owned = {owner: [StoredRecord(one, encode(one)) for one in ours] for owner, ours in records.items()}
        new_name = new_id()
        content, _ = build_segment(new_name, leave_out_dead(redis, keys, owned), replaces=[name])
        store.objects.put(segment_key(keys, new_name), content)
        redis.hdel(keys.group_segments, *[owner.removeprefix("group:") for owner in owned])
        index_segment(redis, keys, store.objects, new_name)
        for owner in owned:
            redis.hdel(keys.chunks(owner), name)
        redis.hdel(keys.segments, name)
        store.objects.delete(key)
        redis.srem(keys.rewrite, name)


if not hasattr(Store, "compact"):
    Store.compact = _compact


@pytest.fixture
def put(store: Store) -> Callable[..., str]:
    """``put(*records)``: writes a segment that nobody has indexed; gives its name."""

    def put(*records: LogRecord) -> str:
        owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
        for record in records:
            owned[owner_of(record)].append(StoredRecord(record, encode(record)))
        name = new_id()
        content, _ = build_segment(name, owned)
        store.objects.put(segment_key(store.keys, name), content)
        return name

    return put


@pytest.fixture
def write(store: Store, put: Callable[..., str]) -> Callable[..., str]:
    """``write(*records)``: writes a segment and commits it, as the shipper does; gives its name."""

    def write(*records: LogRecord) -> str:
        name = put(*records)
        index_segment(store.redis, store.keys, store.objects, name)
        return name

    return write
