"""Reads segments without this project: no Redis, no index, no schema.

    python reader.py DIRECTORY-OR-s3://bucket/prefix [TRAJECTORY]

Without a trajectory it lists the owners in each segment. With one it prints its records as JSON lines. Should all
else be gone, this is enough to read the data. docs/internals/segment-format.md describes the format.

A record of type ``content_ref`` replaces a large content or media. Its ``blob`` names an object beside the segments,
``blob/{first two letters}/{name}``: one frame, whose content is the zstd-compressed body.
"""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

TRAILER = struct.Struct("<II8s")  # size of the footer's frame, format version, magic
FRAME = struct.Struct("<II")  # length of the content, crc32 of it
MAGIC = b"ALSEGMNT"


def unpack(frame: bytes) -> list[bytes]:
    """Return the encoded records of one frame; raise ValueError when its checksum differs."""
    length, checksum = FRAME.unpack_from(frame)
    content = frame[FRAME.size : FRAME.size + length]
    if len(content) != length or zlib.crc32(content) != checksum:
        raise ValueError("frame: its checksum differs, so it is damaged; read another copy")
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(content), type=list[bytes])


def read_footer(segment: bytes) -> dict:
    """Return the footer of a segment: where each chunk is, and index rows."""
    size, version, magic = TRAILER.unpack(segment[-TRAILER.size :])
    if (magic, version) != (MAGIC, 1):
        raise ValueError("segment: it has no trailer of format 1; it is torn, or no segment")
    [footer] = unpack(segment[-TRAILER.size - size : -TRAILER.size])
    return msgspec.msgpack.decode(footer)


def read_records(segment: bytes) -> Iterator[tuple[str, dict]]:
    """Yield all records, each with its owner: a trajectory, ``group:ID`` or ``policy:RUN:NUMBER``."""
    for chunk in read_footer(segment)["chunks"]:
        for record in unpack(segment[chunk["offset"] : chunk["offset"] + chunk["size_bytes"]]):
            yield chunk["owner"], msgspec.msgpack.decode(record)


def segments_in(location: str) -> Iterator[tuple[str, bytes]]:
    """Yield all segments below a directory or an S3 prefix, oldest first, each with its key."""
    if not location.startswith("s3://"):
        for path in sorted(Path(location).rglob("*.seg")):
            yield str(path), path.read_bytes()
        return
    import boto3  # noqa: PLC0415  # a directory needs none

    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    client = boto3.client("s3")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            if entry["Key"].endswith(".seg"):
                yield entry["Key"], client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()


def main(location: str, trajectory_id: str | None = None) -> None:
    """List segments, or print the records of one trajectory, each record once."""
    shown: set[str] = set()
    for key, segment in segments_in(location):
        if trajectory_id is None:
            print(key, *(chunk["owner"] for chunk in read_footer(segment)["chunks"]))
            continue
        for owner, record in read_records(segment):
            line = json.dumps(record, default=lambda value: base64.b64encode(value).decode())
            if owner == trajectory_id and line not in shown:
                shown.add(line)
                print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
