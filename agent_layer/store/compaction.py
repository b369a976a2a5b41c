"""This file holds the least of compaction: segments that hold bytes of something dead are written again without it."""

from typing import cast

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.schema.codec import encode
from agent_layer.store.index import Index
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.rebuild import index_segment, read_segment
from agent_layer.store.segments import StoredRecord, build_segment, segment_key
from agent_layer.store.tombstones import leave_out_dead

__all__ = ["compact_dead"]


def compact_dead(index: Index, objects: ObjectStore) -> None:
    """Write each of them again under a name of its own, let the index know of that, then remove the old one."""
    redis, keys = index.redis, index.keys
    for name in sorted(one.decode() for one in cast("set[bytes]", redis.smembers(keys.rewrite))):
        key = segment_key(keys, name)
        try:
            records = read_segment(objects, key).records
        except CorruptRecordError:
            continue
        except NotFoundError:  # whoever removed it came no further
            redis.hdel(keys.segments, name)
            redis.srem(keys.rewrite, name)
            continue
        owned = {owner: [StoredRecord(one, encode(one)) for one in ours] for owner, ours in records.items()}
        living = leave_out_dead(redis, keys, owned)
        new_name = f"{name}x"
        content, _ = build_segment(new_name, living, replaces=[name])
        objects.put(segment_key(keys, new_name), content)
        if living:
            redis.hdel(keys.group_segments, *[owner.removeprefix("group:") for owner in living])
        index_segment(redis, keys, objects, new_name)
        for owner in living:
            redis.hdel(keys.chunks(owner), name)
        redis.hdel(keys.segments, name)
        objects.delete(key)
        redis.srem(keys.rewrite, name)
