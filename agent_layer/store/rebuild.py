"""This file holds how the index is rebuilt: the segments in the objects are the truth, and they are enough."""

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.codec import LogRecord, decode
from agent_layer.schema.segment import SegmentFooter
from agent_layer.store.commit import commit_segment
from agent_layer.store.keys import Keys
from agent_layer.store.memory import MemoryObjects
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.segments import read_chunk, read_footer

__all__ = [
    "Progress",
    "ReindexReport",
    "Segment",
    "drop_index",
    "index_segment",
    "list_segments",
    "read_segment",
    "reindex",
]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (segments done, segments in all)."""

_SCAN_COUNT = 1_000


class ReindexReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild went through."""

    num_segments: int
    corrupt: list[str]
    """Why each segment that could not be read was left out."""


def list_segments(keys: Keys, objects: ObjectStore) -> list[str]:
    """Keys of all segments of the namespace, oldest first."""
    return sorted(key for key in objects.list(f"{keys.namespace}/seg/") if key.endswith(".seg"))


def reindex(
    redis: Redis, keys: Keys, objects: ObjectStore, *, drop: bool = False, progress: Progress | None = None
) -> ReindexReport:
    """Commit every segment again; what the index holds already does not change.

    With ``drop`` the index is emptied first, so that nothing stays that no segment says. The queue, acknowledgements
    and engines are not in segments and are left alone.
    """
    if drop:
        drop_index(redis, keys)
    segments = list_segments(keys, objects)
    corrupt: list[str] = []
    for num_done, key in enumerate(segments, start=1):
        try:
            index_segment(redis, keys, objects, key)
        except CorruptRecordError as error:
            corrupt.append(str(error))
        if progress:
            progress(num_done, len(segments))
    return ReindexReport(num_segments=len(segments), corrupt=corrupt)


def drop_index(redis: Redis, keys: Keys) -> None:
    """Delete all that is rebuilt from segments."""
    redis.unlink(keys.segments, keys.runs)
    for family in ("t", "ix", "group", "groups", "policies", "batches"):
        found = redis.scan_iter(match=keys.name(family, "*"), count=_SCAN_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
        for key in cast("Iterator[bytes]", found):
            redis.unlink(key)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment read whole."""

    size_bytes: int
    footer: SegmentFooter
    records: dict[str, list[LogRecord]]
    """By owner."""


def read_segment(objects: ObjectStore, key: str) -> Segment:
    """Read all of a segment.

    Raises: CorruptRecordError: some byte of it is not what its checksum says.
    """
    content = objects.get(key)
    held = MemoryObjects({key: content})
    footer = read_footer(held, key)
    records = {chunk.owner: [decode(one) for one in read_chunk(held, key, chunk)] for chunk in footer.chunks}
    return Segment(size_bytes=len(content), footer=footer, records=cast("dict[str, list[LogRecord]]", records))


def index_segment(redis: Redis, keys: Keys, objects: ObjectStore, key: str) -> None:
    """Commit one segment to the index; doing it again changes nothing.

    Raises: CorruptRecordError: some byte of it is not what its checksum says.
    """
    segment = read_segment(objects, key)
    commit_segment(redis, keys, key, segment.size_bytes, segment.footer, segment.records)
