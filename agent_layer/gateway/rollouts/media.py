"""Images leave the messages that show them: each is stored once, and messages refer to it by its hash.

An agent sends the same screenshot again with every turn. In what is stored, a reference (``schema/contents.py``)
replaces the string with the data URL, and the string itself is a content of its own.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from agent_layer.schema import content_hash, refer_to

_QUOTED: Final = b'"data:'
_HEAD: Final = re.compile(rb'(?<!\\)"data:(?:[^"\\,]|\\/){0,200}?;base64,')
"""A quote that is not escaped begins a JSON string."""
_COLON: Final = re.compile(rb"\s*:")
_LEAST_BYTES: Final = 256
"""Shorter ones cost less than their reference and record."""


class Part(msgspec.Struct, frozen=True):
    """A message or tool list in its stored form."""

    hash: str
    body: bytes
    media: dict[str, bytes]
    """JSON strings by hash, to which the body refers."""


def stored_part(body: bytes) -> Part:
    """Return the stored form of a JSON text."""
    media: dict[str, bytes] = {}
    if b";base64," in body:
        body = b"".join(_without_urls(body, media))
    return Part(content_hash(body), body, media)


def _without_urls(body: bytes, media: dict[str, bytes]) -> Iterator[bytes]:
    kept = 0
    for begin, end in _find_urls(body):
        text = body[begin:end]
        name = content_hash(text)
        media[name] = text
        yield body[kept:begin]
        yield msgspec.json.encode(refer_to(name))
        kept = end
    yield body[kept:]


def _find_urls(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each long data URL begins and ends, quotes included.

    One string after the other: a pattern for all of a body would keep the interpreter's lock from its first byte to its
    last. The search for an end stops at the next quote, and so before the next beginning.
    """
    begin = body.find(_QUOTED)
    while begin >= 0:
        head = _HEAD.match(body, begin)
        end = _end_of_string(body, head.end()) if head else None
        if end is not None and end - begin >= _LEAST_BYTES and not _COLON.match(body, end):
            yield begin, end
        begin = body.find(_QUOTED, end or begin + len(_QUOTED))


def _end_of_string(body: bytes, begin: int) -> int | None:
    """Where a string ends that is escaped nowhere but before slashes; None: it has other escapes."""
    end = body.find(b'"', begin)
    if end < 0 or body.count(b"\\", begin, end) != body.count(b"\\/", begin, end):
        return None
    return end + 1
