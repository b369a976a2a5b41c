"""Images leave the messages that show them: each is stored once, and messages refer to it by its hash.

An agent sends the same screenshot again with every turn. In what is stored, a reference (``schema/contents.py``)
replaces the string with the data URL, and the string itself is a content of its own.
"""

import re
from typing import Final

import msgspec

from agent_layer.schema import content_hash, refer_to

# A quote that is not escaped, with these letters after it, begins a JSON string; a colon after it would make it a key.
_DATA_URL: Final = re.compile(rb'(?<!\\)"data:(?:[^"\\,]|\\/){0,200}?;base64,(?:[^"\\]++|\\/)*+"(?!\s*:)')
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
        body = _DATA_URL.sub(lambda match: _taken_out(match[0], media), body)
    return Part(content_hash(body), body, media)


def _taken_out(text: bytes, media: dict[str, bytes]) -> bytes:
    if len(text) < _LEAST_BYTES:
        return text
    name = content_hash(text)
    media[name] = text
    return msgspec.json.encode(refer_to(name))
