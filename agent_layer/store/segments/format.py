"""The segment: the stored form of records. No Redis is needed to read one.

A segment is a row of frames, then a trailer::

    chunk frame, one per owner    [u32 length | u32 crc32 | zstd(msgpack list of encoded records)]
    footer frame                  [u32 length | u32 crc32 | zstd(msgpack list of one encoded SegmentFooter)]
    trailer, 16 bytes             [u32 size of the footer frame | u32 format version | "ALSEGMNT"]

All numbers are little-endian; the length and the checksum of a frame cover the bytes after them. The owner of a record
is its trajectory, group or policy version (``record_owner``); the footer has the location of each owner's chunk. Every
whole frame of a torn or damaged segment can be read.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import zstandard

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra import Keys, ObjectStore
from agent_layer.recorder import FRAME_HEADER, frame, unframe
from agent_layer.schema import (
    Chunk,
    LogRecord,
    SegmentFooter,
    decode,
    decode_footer,
    encode,
    id_timestamp,
    owner_text,
    record_owner,
    trajectory_owner,
)
from agent_layer.store.segments.outline import Outline
from agent_layer.store.segments.summary import OwnerEntry, describe_owner, make_footer

_TRAILER = struct.Struct("<II8s")

_MAGIC = b"ALSEGMNT"

_FORMAT_VERSION = 1

_LEVEL = 1
_TRUSTED_BYTES = 1 << 26
"""Size of an unpacked chunk, as its frame names it, up to which the memory is taken at once."""

_TAIL_BYTES = 1 << 16
"""Read at once from the end; most footers lie within."""

_ENDING = ".seg"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment read whole."""

    size_bytes: int
    footer: SegmentFooter
    records: dict[str, list[LogRecord]]
    """Records by owner."""
    misnamed: Sequence[str] = ()
    """Trajectories that an earlier version wrote under the name of another kind of owner."""


def list_segments(keys: Keys, objects: ObjectStore) -> list[str]:
    """Keys of all segments of the namespace, oldest first."""
    return sorted(key for key in objects.list(f"{keys.namespace}/seg/") if segment_name(key))


class StoredRecord(NamedTuple):
    """A record, or its outline, beside its stored form."""

    record: LogRecord | Outline
    content: bytes


class SealedSegment(NamedTuple):
    """What has to be known of a segment to index it."""

    footer: SegmentFooter
    size_bytes: int
    misnamed: Sequence[str] = ()
    """Trajectories under the name of another kind of owner; see ``Segment``."""


def segment_key(keys: Keys, name: str) -> str:
    """Key of the object that a segment becomes; its folder is the day of its making.

    Raises: BadInputError: the name does not begin with an id (see ``new_id``).
    """
    try:
        day = datetime.fromtimestamp(id_timestamp(name), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadInputError(
            f"segment {name!r}: expected a name that begins with an id of 26 characters, found another; it is not ours"
        ) from error
    return f"{keys.namespace}/seg/{day:%Y/%m/%d}/{name}{_ENDING}"


def is_segment_name(keys: Keys, name: str) -> bool:
    """Whether a segment's name says where its object lies, as all names do that we give."""
    try:
        return bool(segment_key(keys, name))
    except BadInputError:
        return False


def segment_name(key: str) -> str | None:
    """Name of the segment that lies at a key; None where no segment of ours would lie."""
    name = key.rpartition("/")[2]
    return name.removesuffix(_ENDING) if name.endswith(_ENDING) else None


class SegmentBuilder:
    """Puts a segment together owner by owner; of the records only their packed form is kept.

    Args:
        level: of zstd; a negative one hardly packs, for a segment that is packed again as a whole.
    """

    def __init__(self, level: int = _LEVEL) -> None:
        self._compressor = zstandard.ZstdCompressor(level=level)  # one for all: making it takes as long as its work
        self._stored = bytearray()
        self._chunks: list[Chunk] = []
        self._entries: list[OwnerEntry] = []

    def add(self, owner: str, records: Sequence[StoredRecord]) -> None:
        """Add all that the segment is to hold of one owner, as ``record_owner`` names it."""
        packed = self._pack([one.content for one in records])
        self._chunks.append(Chunk(owner=owner, offset=len(self._stored), size_bytes=len(packed)))
        self._entries += describe_owner([one.record for one in records])
        self._stored += packed

    def digest(self) -> bytes:
        """Digest of the content, without the name."""
        return blake2b(self._stored).digest()

    def finish(self, name: str, replaces: Iterable[str] = ()) -> tuple[bytes, SealedSegment]:
        """Return the segment's bytes and its description; see ``build_segment``."""
        footer = make_footer(name, self._chunks, self._entries, replaces)
        packed = self._pack([encode(footer)])
        content = b"".join((self._stored, packed, _TRAILER.pack(len(packed), _FORMAT_VERSION, _MAGIC)))
        return content, SealedSegment(footer, len(content))

    def _pack(self, records: Sequence[bytes]) -> bytes:
        return frame(self._compressor.compress(msgspec.msgpack.encode(records)))


def build_segment(
    name: str, records_by_owner: Mapping[str, Sequence[StoredRecord]], replaces: Iterable[str] = ()
) -> tuple[bytes, SealedSegment]:
    """Put records into the form above; the same arguments give the same bytes.

    Args:
        name: begins with an id, which says when it was made.
        records_by_owner: what it is to hold; owners as ``record_owner`` names them.
        replaces: names of segments whose living records are all among these.
    """
    builder = SegmentBuilder()
    for owner, records in records_by_owner.items():
        builder.add(owner, records)
    return builder.finish(name, replaces)


def read_footer(objects: ObjectStore, key: str) -> SealedSegment:
    """Read what is inside a segment, and nothing else of it.

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
    found = unpack(packed, size, f"footer of segment {key}")
    if len(found) != 1:
        raise CorruptRecordError(f"footer of segment {key}: expected one record, found {len(found)}; it is no segment")
    footer, misnamed = _with_kinds(decode_footer(found[0]), key)
    stored = max((chunk.offset + chunk.size_bytes for chunk in footer.chunks), default=0)
    return SealedSegment(footer, stored + size + _TRAILER.size, misnamed)


def _with_kinds(footer: SegmentFooter, key: str) -> tuple[SegmentFooter, Sequence[str]]:
    """Name trajectories by ``owner_text`` where an earlier version wrote their ids, which read like groups or batches.

    Records of a trajectory and of another owner share a chunk there, if both had one text.

    Returns: the footer, and these ids.
    Raises: CorruptRecordError: it describes an owner that has no chunk.
    """
    written = {chunk.owner for chunk in footer.chunks}
    owners = {one.trajectory_id: trajectory_owner(one.trajectory_id) for one in footer.trajectories}
    renamed = {name: owner for name, owner in owners.items() if owner not in written}
    others = {owner_text("group", one.group_id) for one in footer.groups}
    others |= {owner_text("batch", f"{one.run}:{one.step}") for one in footer.batches}
    others |= {owner_text("policy", f"{one.run}:{one.number}") for one in footer.policies}
    if strays := (others | renamed.keys()) - written:
        raise CorruptRecordError(
            f"footer of segment {key}: expected a chunk of {min(strays)!r}, which it describes, found its records under"
            " an owner of another kind; another program wrote it, and 'agent-layer store reindex' serves what is whole"
        )
    if not renamed:
        return footer, ()
    chunks: list[Chunk] = []
    for chunk in footer.chunks:
        if chunk.owner in renamed:
            chunks.append(msgspec.structs.replace(chunk, owner=renamed[chunk.owner]))
        if chunk.owner not in renamed or chunk.owner in others:
            chunks.append(chunk)
    return msgspec.structs.replace(footer, chunks=chunks), sorted(renamed)


def read_chunk(objects: ObjectStore, key: str, chunk: Chunk) -> list[bytes]:
    """Read the encoded records of one owner.

    Raises: CorruptRecordError: the bytes are not those that were written.
    """
    packed = objects.get(key, chunk.offset, chunk.size_bytes)
    return unpack(packed, chunk.size_bytes, f"part of {chunk.owner} in segment {key}")


def is_of_later_format(content: bytes) -> bool:
    """Whether a later version of the agent layer wrote this segment: it is intact, but this version cannot read it."""
    trailer = content[-_TRAILER.size :]
    _, version, magic = _TRAILER.unpack(trailer) if len(trailer) == _TRAILER.size else (0, 0, b"")
    return magic == _MAGIC and version > _FORMAT_VERSION


def find_frames(content: bytes) -> list[tuple[int, int]]:
    """Locations of the whole frames of a segment without its footer: (offset, size in bytes) each.

    A frame that is not what was written is passed over, as long as its length can be believed.
    """
    places: list[tuple[int, int]] = []
    offset = 0
    while len(content) >= offset + FRAME_HEADER.size:
        length, _ = FRAME_HEADER.unpack_from(content, offset)
        size = FRAME_HEADER.size + length
        if length == 0 or offset + size > len(content):
            break
        if unframe(content, offset) is not None:
            places.append((offset, size))
        offset += size
    return places


def unpack(packed: bytes, size_bytes: int, subject: str) -> list[bytes]:
    """Read the encoded records of one frame.

    Raises: CorruptRecordError: the bytes are not those that were written.
    """
    content = unframe(packed)
    if content is None or len(packed) != size_bytes:
        raise CorruptRecordError(
            f"{subject}: expected {size_bytes} bytes with their checksum, found others; restore the object from a copy"
        )
    try:
        return msgspec.msgpack.decode(_decompress(content), type=list[bytes])
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise CorruptRecordError(
            f"{subject}: expected packed records behind the checksum, found others ({error}); another program wrote it"
        ) from error


def _decompress(content: bytes) -> bytes:
    """Undo zstd. Memory for a large result is taken as it grows: a damaged frame may claim any size."""
    if zstandard.frame_content_size(content) <= _TRUSTED_BYTES:
        return zstandard.ZstdDecompressor().decompress(content)
    stream = zstandard.ZstdDecompressor().decompressobj()
    unpacked = stream.decompress(content)
    if not stream.eof:
        raise zstandard.ZstdError("the frame is cut short")
    return unpacked


def salvage_segment(content: bytes, name: str) -> SealedSegment | None:
    """Make a footer for a segment whose own cannot be read; None where nothing of it is whole, or can be understood."""
    if is_of_later_format(content):
        return None
    chunks: list[Chunk] = []
    records: defaultdict[str, list[LogRecord]] = defaultdict(list)
    for offset, size in find_frames(content):
        try:
            contents = unpack(content[offset : offset + size], size, "frame")
            found = [one for one in map(decode, contents) if isinstance(one, LogRecord)]
        except CorruptRecordError:  # it holds something else, such as a footer
            continue
        for one in found:
            records[record_owner(one)].append(one)
        chunks += [Chunk(owner=one, offset=offset, size_bytes=size) for one in dict.fromkeys(map(record_owner, found))]
    if not chunks:
        return None
    entries = [entry for ours in records.values() for entry in describe_owner(ours)]
    return SealedSegment(make_footer(name, chunks, entries), len(content))
