"""This file holds what can still be had of a segment that was torn or damaged: every frame that is whole."""

from collections import defaultdict

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.codec import LogRecord, decode, owner_of
from agent_layer.schema.segment import Chunk
from agent_layer.store.segments import SealedSegment, find_frames, is_of_later_format, unpack
from agent_layer.store.summary import describe_owner, footer_of

__all__ = ["salvage_segment"]


def salvage_segment(content: bytes, name: str) -> SealedSegment | None:
    """Make a footer for a segment whose own cannot be read; None where nothing of it is whole, or can be understood."""
    if is_of_later_format(content):
        return None
    chunks: list[Chunk] = []
    records: defaultdict[str, list[LogRecord]] = defaultdict(list)
    for offset, size in find_frames(content):
        found = _records_in(content[offset : offset + size], size)
        if found:
            owner = owner_of(found[0])
            chunks.append(Chunk(owner=owner, offset=offset, size_bytes=size))
            records[owner] += found
    if not chunks:
        return None
    entries = [entry for owner, ours in records.items() for entry in describe_owner(owner, ours)]
    return SealedSegment(footer_of(name, chunks, entries), len(content))


def _records_in(packed: bytes, size: int) -> list[LogRecord]:
    """Records of a frame; none where it holds something else, such as a footer."""
    try:
        found = [decode(one) for one in unpack(packed, size, "frame")]
    except CorruptRecordError:
        return []
    return [one for one in found if isinstance(one, LogRecord)]
