"""This file holds where stored bytes lie: segments, their chunks, and the rows that index them."""

from agent_layer.schema.record import SCHEMA_VERSION, Record

__all__ = ["Chunk", "SegmentFooter"]


class Chunk(Record):
    """One frame of a segment: all records of one owner (a trajectory, group or policy) in one log file."""

    owner: str
    offset: int
    """Bytes from the beginning of the segment to the frame's length field."""
    size_bytes: int
    """Frame header included."""


class SegmentFooter(Record, tag="segment_footer"):
    """The last frame of a segment: what is inside."""

    name: str
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = SCHEMA_VERSION
    chunks: list[Chunk] = []
