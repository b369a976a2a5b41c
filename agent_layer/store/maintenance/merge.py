"""Merge of several segments into one: a chunk per owner, each record once, without deleted ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, MemoryObjects, ObjectStore
from agent_layer.schema import Chunk, SegmentFooter, split_owner
from agent_layer.store.segments.format import SegmentBuilder, StoredRecord, read_chunk, read_footer, segment_key
from agent_layer.store.segments.tombstones import drop_deleted


class BrokenSegmentError(Exception):
    """A segment is unreadable; ``reason`` tells why."""

    def __init__(self, name: str, reason: CorruptRecordError | NotFoundError) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


class MergeInput(NamedTuple):
    """A segment opened for reading."""

    footer: SegmentFooter
    size_bytes: int
    objects: ObjectStore
    """Store to read it from; a small one is in memory."""
    key: str


class Merger(NamedTuple):
    """Result of a merge."""

    builder: SegmentBuilder
    is_empty: bool
    """No record is left."""
    emptied: list[str]
    """Groups without a deletion of their own whose members are all deleted."""


def open_segment(keys: Keys, objects: ObjectStore, name: str, *, whole: bool) -> MergeInput:
    """Open a segment; ``whole`` fetches all of it at once.

    Raises: BrokenSegmentError: it does not exist, or is not a segment.
    """
    key = segment_key(keys, name)
    try:
        held = MemoryObjects({key: objects.get(key)}) if whole else objects
        footer, size_bytes, _ = read_footer(held, key)
    except (CorruptRecordError, NotFoundError) as error:
        raise BrokenSegmentError(name, error) from error
    return MergeInput(footer, size_bytes, held, key)


def merge_sources(sources: Sequence[MergeInput], dead: Iterable[str], beat: Callable[[], None]) -> Merger:
    """Merge segments owner by owner; ``beat`` is called often.

    Raises: BrokenSegmentError: one of them cannot be read.
    """
    places: dict[str, list[tuple[MergeInput, Chunk]]] = {}
    for source in sources:
        for chunk in source.footer.chunks:
            places.setdefault(chunk.owner, []).append((source, chunk))
    dead, builder, emptied = frozenset(dead), SegmentBuilder(), list[str]()
    is_empty = True
    for owner, ours in places.items():
        if owner in dead:
            continue
        records = {one.content: one for source, chunk in ours for one in read_live_records(source, chunk, dead)}
        if records:
            builder.add(owner, list(records.values()))
            is_empty = False
        elif split_owner(owner)[0] == "group":
            emptied.append(owner)
        beat()
    return Merger(builder, is_empty, emptied)


def read_live_records(source: MergeInput, chunk: Chunk, dead: Iterable[str]) -> list[StoredRecord]:
    """Read the live records of one chunk.

    Raises: BrokenSegmentError: its bytes are damaged, or a later version wrote it.
    """
    try:
        return drop_deleted(chunk.owner, read_chunk(source.objects, source.key, chunk), dead)
    except (CorruptRecordError, NotFoundError) as error:
        raise BrokenSegmentError(source.footer.name, error) from error
