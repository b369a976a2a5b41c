"""This file holds how one content refers to another, so that a value that many steps share is stored once."""

from collections.abc import Mapping
from typing import cast

import msgspec

__all__ = ["refer_to", "resolve"]

_REFERENCE = "$content"


def refer_to(content_hash: str) -> dict[str, str]:
    """Give what stands in a content's JSON where the content of this hash belongs."""
    return {_REFERENCE: content_hash}


def resolve(contents: Mapping[str, bytes], content_hash: str) -> object:
    """Read a content as JSON, with everything it refers to in place.

    Args:
        contents: JSON text by content hash.
        content_hash: which one.

    Returns:
        The value; a reference to a content that is not there stays a reference.
    """
    body = contents.get(content_hash)
    return refer_to(content_hash) if body is None else _resolve_in(contents, msgspec.json.decode(body))


def _resolve_in(contents: Mapping[str, bytes], value: object) -> object:
    if isinstance(value, list):
        return [_resolve_in(contents, item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    if fields.keys() == {_REFERENCE} and isinstance(target := fields[_REFERENCE], str):
        return resolve(contents, target)
    return {key: _resolve_in(contents, item) for key, item in fields.items()}
