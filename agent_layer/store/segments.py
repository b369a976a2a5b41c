"""This file holds segments, the form in which records are stored. No Redis is needed to read one.

A segment is a row of frames, then a trailer::

    chunk frame, one per owner    [u32 length | u32 crc32 | zstd(msgpack list of encoded records)]
    footer frame                  [u32 length | u32 crc32 | zstd(msgpack list of one encoded SegmentFooter)]
    trailer, 16 bytes             [u32 size of the footer frame | u32 format version | "ALSEGMNT"]

All numbers are little-endian, lengths and checksums speak of what follows them in the frame. The owner of a record is
its trajectory, group or policy version (``owner_of``); the footer says where the chunk of each owner lies.
"""

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import zstandard

from agent_layer.errors import CorruptRecordError
from agent_layer.recorder.frames import frame, unframe
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.segment import Chunk, SegmentFooter
from agent_layer.store.keys import Keys
from agent_layer.store.protocols import ObjectStore

__all__ = ["build_segment", "read_chunk", "read_footer", "segment_key"]

_TRAILER = struct.Struct("<II8s")
_MAGIC = b"ALSEGMNT"
_FORMAT_VERSION = 1
_LEVEL = 1
_TAIL_BYTES = 1 << 16
"""Read at once from the end; most footers lie within."""


def segment_key(keys: Keys, name: str, created_at: float) -> str:
    """Key of the object that a segment becomes."""
    return f"{keys.namespace}/seg/{datetime.fromtimestamp(created_at, UTC):%Y/%m/%d}/{name}.seg"


def build_segment(
    name: str, created_at: float, records_by_owner: Mapping[str, Sequence[bytes]]
) -> tuple[bytes, SegmentFooter]:
    """Put encoded records into the form above; the same arguments give the same bytes."""
    stored = bytearray()
    chunks: list[Chunk] = []
    for owner, records in records_by_owner.items():
        packed = _pack(records)
        chunks.append(Chunk(owner=owner, offset=len(stored), size_bytes=len(packed)))
        stored += packed
    footer = SegmentFooter(name=name, created_at=created_at, chunks=chunks)
    packed = _pack([encode(footer)])
    trailer = _TRAILER.pack(len(packed), _FORMAT_VERSION, _MAGIC)
    return bytes(stored + packed + trailer), footer


def read_footer(objects: ObjectStore, key: str) -> SegmentFooter:
    """Read what is inside a segment.

    Raises: CorruptRecordError: it is no segment, or one of a later format.
    """
    tail = objects.get(key, -_TAIL_BYTES)
    trailer = tail[-_TRAILER.size :]
    size, version, magic = _TRAILER.unpack(trailer) if len(trailer) == _TRAILER.size else (0, 0, b"")
    if (version, magic) != (_FORMAT_VERSION, _MAGIC):
        raise CorruptRecordError(
            f"segment {key}: expected to end as a segment of format {_FORMAT_VERSION}, found {magic!r} of format"
            f" {version}; it is damaged, or was written by a later version"
        )
    if len(tail) < size + _TRAILER.size:
        tail = objects.get(key, -size - _TRAILER.size)
    packed = tail[-size - _TRAILER.size : -_TRAILER.size]
    footer = decode(_unpack(packed, size, f"footer of segment {key}")[0])
    if isinstance(footer, SegmentFooter):
        return footer
    raise CorruptRecordError(f"segment {key}: expected a footer at its end, found {type(footer).__name__}; restore it")


def read_chunk(objects: ObjectStore, key: str, chunk: Chunk) -> list[bytes]:
    """Read the encoded records of one owner.

    Raises: CorruptRecordError: the bytes are not those that were written.
    """
    packed = objects.get(key, chunk.offset, chunk.size_bytes)
    return _unpack(packed, chunk.size_bytes, f"part of {chunk.owner} in segment {key}")


def _pack(records: Sequence[bytes]) -> bytes:
    return frame(zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.msgpack.encode(records)))


def _unpack(packed: bytes, size_bytes: int, subject: str) -> list[bytes]:
    content = unframe(packed)
    if content is None or len(packed) != size_bytes:
        raise CorruptRecordError(
            f"{subject}: expected {size_bytes} bytes with their checksum, found others; restore the object from a copy"
        )
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(content), type=list[bytes])
