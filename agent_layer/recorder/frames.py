"""Frames, the form of bytes in logs and segments: ``[u32 length | u32 crc32 | content]``.

Both numbers are little-endian and describe the content. The checksum reveals a frame that a crash cut short, and one
whose content is not what was written.
"""

import struct
import zlib

FRAME_HEADER = struct.Struct("<II")


def frame(content: bytes) -> bytes:
    """Return the content with its length and checksum in front."""
    return FRAME_HEADER.pack(len(content), zlib.crc32(content)) + content


def unframe(stored: bytes, offset: int = 0) -> bytes | None:
    """Return the content of the frame at this offset; None when it is torn, or zeros, as a power loss leaves them."""
    if len(stored) < offset + FRAME_HEADER.size:
        return None
    length, checksum = FRAME_HEADER.unpack_from(stored, offset)
    begin = offset + FRAME_HEADER.size
    content = stored[begin : begin + length]
    return content if 0 < length == len(content) and zlib.crc32(content) == checksum else None


def read_frames(stored: bytes) -> tuple[list[bytes], int]:
    """Read frames up to the end or the first torn one.

    Returns: ([num_frames] contents, number of bytes at the end that are no whole frame).
    """
    contents: list[bytes] = []
    offset = 0
    while (content := unframe(stored, offset)) is not None:
        contents.append(content)
        offset += FRAME_HEADER.size + len(content)
    return contents, len(stored) - offset


def is_damaged(torn: bytes) -> bool:
    """Whether bytes that are no whole frame were once one: all of it is there, but it is not what was written.

    A killed writer leaves the beginning of a frame, a power loss may leave zeros: both are within the promise.
    """
    if len(torn) < FRAME_HEADER.size or not any(torn):
        return False
    length, _ = FRAME_HEADER.unpack_from(torn)
    return FRAME_HEADER.size + length <= len(torn)
