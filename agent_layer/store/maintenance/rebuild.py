"""Rebuild of the index from the footers of the segments, and its removal from Redis.

The segments in the objects are the truth. A namespace that is done can leave Redis, and a rebuild restores its index.
"""

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, MemoryObjects, ObjectStore, batched, read_server_change
from agent_layer.schema import LogRecord, decode
from agent_layer.store.index.aggregate import count_trajectories
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.index import Index
from agent_layer.store.index.restore import enter_segments
from agent_layer.store.maintenance.index_audit import count_orphan_bits
from agent_layer.store.maintenance.lock import check_permission
from agent_layer.store.segments.format import (
    SealedSegment,
    Segment,
    list_segments,
    read_chunk,
    read_footer,
    salvage_segment,
    segment_key,
    segment_name,
)
from agent_layer.store.segments.tombstones import decode_names, list_tombstones, load_tombstones

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (segments done, segments in all)."""

_SCAN_COUNT = 1_000
_NUM_AT_ONCE = 16
"""Footers read at the same time; a distant store answers slowly."""
_SEGMENTS_TOGETHER = 32
"""Segments indexed between two records of the rebuild's progress."""
_BATCHES_BETWEEN_SEARCHES = 16
"""Batches of segments between two searches for cycles; each looks at all of the batch that is being read."""
_FAMILIES = (("t",), ("b",), ("v", "values", "group", "groups", "policies", "batches"))
"""Turns of the removal: rows go before their bits, else a commit in between would leave bits without a row."""
_KEYS_TOGETHER = 512


class ReindexReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a rebuild."""

    num_segments: int
    num_resumed: int = 0
    """Segments that an earlier, stopped rebuild had indexed."""
    corrupt: list[str]
    """Reason for each segment in quarantine: unreadable, or only in part readable."""


def find_unindexed(redis: Redis, keys: Keys, objects: ObjectStore) -> list[str]:
    """Return the keys of segments that the index does not know: it was cooled or lost, or they are on their way."""
    listed = list_segments(keys, objects)  # first: a segment is stored before it is indexed
    known = decode_names(redis.hkeys(keys.segments))
    return [key for key in listed if segment_name(key) not in known]


def reindex(
    redis: Redis,
    keys: Keys,
    objects: ObjectStore,
    *,
    drop: bool = False,
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> ReindexReport:
    """Commit every segment again: existing entries stay unchanged, lost ones return; commits go on meanwhile.

    With ``drop`` the index is emptied first, so that no entry without a segment stays. Queue, acknowledgements and
    engines are not in segments and stay unchanged. A stopped rebuild continues where it was when called again.
    ``only`` names the keys of the segments that are committed, in order, for an index over a part.
    """
    check_permission(redis, keys)
    change = read_server_change(redis, keys)
    done_to = _begin(redis, keys, change, drop=drop)
    load_tombstones(redis, keys, list_tombstones(keys, objects))
    segments = list_segments(keys, objects) if only is None else only
    left = [key for key in segments if key > done_to]
    num_resumed, corrupt = len(segments) - len(left), list[str]()
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads, _pause_gc():
        num_done = num_resumed
        for number, read in enumerate(_read_ahead(threads, objects, left), start=1):
            corrupt += _enter(redis, keys, read)
            num_done += len(read)
            redis.hset(keys.reindexing, "done_to", segments[num_done - 1])
            if progress:
                progress(num_done, len(segments))
            if number % _BATCHES_BETWEEN_SEARCHES == 0:
                gc.collect(1)
    if read_server_change(redis, keys) != change:  # what was entered, it may have forgotten
        return reindex(redis, keys, objects, drop=drop, only=only, progress=progress)
    if not redis.hexists(keys.reindexing, "began_empty"):
        count_orphan_bits(redis, keys, clear=True)
    redis.delete(keys.reindexing, keys.cooled)
    return ReindexReport(num_segments=len(segments), num_resumed=num_resumed, corrupt=corrupt)


@contextmanager
def _pause_gc() -> Generator[None]:
    """Keep Python from looking for cycles: footers have none, and its searches would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _begin(redis: Redis, keys: Keys, change: bytes, *, drop: bool) -> str:
    """Empty the index if requested or not finished; return the key up to which all segments are indexed."""
    state = cast("dict[bytes, bytes]", redis.hgetall(keys.reindexing))
    is_known = state.get(b"change", b"") == change  # else the server may have forgotten what was entered
    if b"done_to" in state and is_known and (not drop or b"drop" in state):
        return state[b"done_to"].decode()
    if is_dropped := drop or b"drop" in state:
        redis.hset(keys.reindexing, "drop", 1)
        drop_index(redis, keys)
    is_empty = not redis.exists(keys.zones, keys.blocks_with("all"))
    if is_empty and (is_dropped or not _has_blocks(redis, keys)):  # so no bits without a row can be there
        redis.hset(keys.reindexing, "began_empty", 1)
    redis.hset(keys.reindexing, mapping={"done_to": "", "change": change})
    return ""


def _has_blocks(redis: Redis, keys: Keys) -> bool:
    """Whether a key of a block is there, which a Redis that lost other keys may have kept."""
    found = redis.scan_iter(match=keys.name("b", "*"), count=_SCAN_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
    return any(True for _ in cast("Iterator[bytes]", found))


def drop_index(redis: Redis, keys: Keys) -> None:
    """Delete every key that a rebuild restores from segments."""
    redis.unlink(keys.segments, keys.runs, keys.zones, keys.quarantine, keys.rewrite, keys.dead)
    redis.unlink(keys.group_segments, keys.batch_segments)
    for families in _FAMILIES:
        begins = tuple(keys.name(family, "").encode() for family in families)
        found = redis.scan_iter(match=keys.name("*"), count=_SCAN_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
        rebuilt = (key for key in cast("Iterator[bytes]", found) if key.startswith(begins))
        for page in batched(rebuilt, _KEYS_TOGETHER):
            redis.unlink(*page)


def _read_ahead(
    threads: ThreadPoolExecutor, objects: ObjectStore, segments: Sequence[str]
) -> Iterator["list[_ReadablePart]"]:
    """Read segments in batches; while one batch is indexed, the next is being read."""
    coming: deque[Iterator[_ReadablePart]] = deque()
    for batch in batched(segments, _SEGMENTS_TOGETHER):
        coming.append(threads.map(partial(_read_or_salvage, objects), batch))
        if len(coming) > 1:
            yield list(coming.popleft())
    yield from map(list, coming)


class _ReadablePart(NamedTuple):
    """Readable part of one segment."""

    name: str
    sealed: SealedSegment | None
    fault: str | None


def _read_or_salvage(objects: ObjectStore, key: str) -> _ReadablePart:
    name = segment_name(key) or key
    try:
        return _ReadablePart(name, read_footer(objects, key), None)
    except NotFoundError:  # merged into another one since it was listed
        return _ReadablePart(name, None, None)
    except CorruptRecordError as error:
        return _ReadablePart(name, salvage_segment(objects.get(key), name), str(error))


def _enter(redis: Redis, keys: Keys, read: Sequence[_ReadablePart]) -> list[str]:
    """Commit the readable segments, quarantine the others; return the faults."""
    enter_segments(redis, keys, [one.sealed for one in read if one.sealed], again=True)
    faults = {one.name: one.fault for one in read if one.fault}
    if faults:
        redis.hset(keys.quarantine, mapping={**faults})
    if sound := [one.name for one in read if not one.fault]:
        redis.hdel(keys.quarantine, *sound)
    return list(faults.values())


def read_segment(objects: ObjectStore, key: str) -> Segment:
    """Read all of a segment.

    Raises: CorruptRecordError: some of its bytes do not match their checksum.
    """
    content = objects.get(key)
    held = MemoryObjects({key: content})
    footer, _, misnamed = read_footer(held, key)
    records = {chunk.owner: [decode(one) for one in read_chunk(held, key, chunk)] for chunk in footer.chunks}
    decoded = cast("dict[str, list[LogRecord]]", records)
    return Segment(size_bytes=len(content), footer=footer, records=decoded, misnamed=misnamed)


def index_segment(redis: Redis, keys: Keys, objects: ObjectStore, name: str) -> None:
    """Commit one segment to the index. Idempotent; restores lost entries.

    Raises: CorruptRecordError: its footer does not match its checksum.
    """
    commit_segments(redis, keys, [read_footer(objects, segment_key(keys, name))], again=True)


def offload_index(index: Index) -> int:
    """Remove the index from Redis; return the number of trajectories that it held.

    Raises: BadInputError: trajectories still run, or decisions wait to be shipped.
    """
    redis, keys = index.redis, index.keys
    num_running = count_trajectories(index, {"status": "running"})
    if num_running or redis.xlen(keys.outbox):
        raise BadInputError(
            f"namespace {keys.namespace!r}: still active, with {num_running} running trajectories"
            f" and {redis.xlen(keys.outbox)} decisions to ship; wait for them, or choose another namespace"
        )
    num_known = count_trajectories(index, {})
    if runs := cast("set[bytes]", redis.smembers(keys.runs)):
        redis.sadd(keys.cooled, *runs)
    drop_index(redis, keys)
    return num_known
