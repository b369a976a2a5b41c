"""This file holds frames, the form in which bytes lie in logs and segments: ``[u32 length | u32 crc32 | content]``.

Both numbers are little-endian and speak of the content. A frame that was cut short by a crash, or whose content is
not what was written, shows by its checksum.
"""

import struct
import zlib

__all__ = ["FRAME_HEADER", "frame", "read_frames", "unframe"]

FRAME_HEADER = struct.Struct("<II")


def frame(content: bytes) -> bytes:
    """Put length and checksum before the content."""
    return FRAME_HEADER.pack(len(content), zlib.crc32(content)) + content


def unframe(stored: bytes, offset: int = 0) -> bytes | None:
    """Give the content of the frame at this offset; None when it is torn."""
    if len(stored) < offset + FRAME_HEADER.size:
        return None
    length, checksum = FRAME_HEADER.unpack_from(stored, offset)
    begin = offset + FRAME_HEADER.size
    content = stored[begin : begin + length]
    return content if len(content) == length and zlib.crc32(content) == checksum else None


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
