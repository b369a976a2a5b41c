"""Restores what the index lacks after Redis was restarted, replaced or emptied.

The objects know: a segment that the index does not name as committed is committed again. Segments lie in folders of
days, so only those of the last two days are looked at; ``reindex`` looks at all. Until this is done, the queue
decides nothing (``dispatcher/lua/gate.lua``), so that a stored decision stands.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, cast

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, ObjectStore, batched, greet_again, read_server_change, rewrite_torn_file
from agent_layer.store.index.restore import enter_segments
from agent_layer.store.segments.format import SealedSegment, read_footer, salvage_segment, segment_name
from agent_layer.store.segments.tombstones import list_tombstones, load_tombstones

_NUM_DAYS: Final = 2
_LOCK_MS: Final = 10_000
"""Time after which another process goes on with what a killed one began."""
_PAGE: Final = 256
_NUM_AT_ONCE: Final = 16
_NUM_TOGETHER: Final = 32

log = logging.getLogger(__name__)


def restore_index(redis: Redis, keys: Keys, objects: ObjectStore) -> bool:
    """Commit recent segments that the index lacks, where the server changed since the last time.

    Returns: whether the index is whole; False where another process is at work on it.
    Raises: UnreachableError. CorruptRecordError: a tombstone is unreadable, so that what it deleted would come back.
    """
    server, lock = keys.queue("server"), keys.queue("restoring")
    while not (change := read_server_change(redis, keys)):
        greet_again(redis, keys)
    if (restored := redis.hget(server, "restored")) == change:
        return True
    if not redis.set(lock, 1, nx=True, px=_LOCK_MS):
        return False
    try:
        num = _commit_lacking(redis, keys, objects, lock, is_new=not restored)
        redis.hset(server, "restored", change)
    except RedisError:  # the lock lapses
        raise
    except (AgentLayerError, OSError):
        redis.delete(lock)
        raise
    redis.delete(lock)
    log.info("index restored server_change=%s num_segments=%d", change.decode(), num)
    return True


def _commit_lacking(redis: Redis, keys: Keys, objects: ObjectStore, lock: str, *, is_new: bool) -> int:
    """Commit what is lacking; return the number of segments."""
    if not is_new:
        rewrite_torn_file(redis)
        redis.hset(keys.queue("server"), "restarted", 1)
    if redis.exists(keys.cooled):  # it lacks segments on purpose
        return 0
    num = 0
    dead = cast("dict[bytes, bytes]", redis.hgetall(keys.dead))
    stones = [one for one in list_tombstones(keys, objects) if one.owner_hash.encode() not in dead]
    load_tombstones(redis, keys, stones)
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for page in batched(_find_lacking(redis, keys, objects), _NUM_TOGETHER):
            redis.pexpire(lock, _LOCK_MS)
            read = threads.map(partial(_read, redis, keys, objects), page)
            enter_segments(redis, keys, [one for one in read if one is not None], again=True)
            num += len(page)
    return num


def _find_lacking(redis: Redis, keys: Keys, objects: ObjectStore) -> Iterator[str]:
    """Yield the keys of recent segments that are not committed, oldest first."""
    today = datetime.fromtimestamp(redis.time()[0], UTC)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    days = [today + timedelta(days=number) for number in range(1 - _NUM_DAYS, 2)]  # tomorrow: clocks differ
    for day in days:
        found = [key for key in objects.list(f"{keys.namespace}/seg/{day:%Y/%m/%d}/") if segment_name(key)]
        for page in batched(found, _PAGE):
            sizes = cast("list[bytes | None]", redis.hmget(keys.segments, [segment_name(key) or "" for key in page]))
            yield from (key for key, size in zip(page, sizes, strict=True) if size is None)


def _read(redis: Redis, keys: Keys, objects: ObjectStore, key: str) -> SealedSegment | None:
    """Return what is to be indexed of a segment; None where there is nothing."""
    name = segment_name(key) or key
    try:
        return read_footer(objects, key)
    except NotFoundError:  # merged into another one since it was listed
        return None
    except CorruptRecordError as error:
        redis.hset(keys.quarantine, name, str(error))
        return salvage_segment(objects.get(key), name)
