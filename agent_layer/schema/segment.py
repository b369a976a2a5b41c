"""This file holds where stored bytes lie: segments, their chunks, and the rows that index them."""

import msgspec

from agent_layer.schema.record import Record, current_version

__all__ = ["Chunk", "SegmentFooter"]


class Chunk(Record, frozen=True, kw_only=True):
    """One frame of a segment: all records of one owner (a trajectory, group or policy) in one log file."""

    owner: str
    offset: int
    """Bytes from the beginning of the segment to the frame's length field."""
    size_bytes: int
    """Frame header included."""


class SegmentFooter(Record, frozen=True, kw_only=True, tag="segment_footer"):
    """The last frame of a segment: what is inside."""

    name: str
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    chunks: list[Chunk] = []
