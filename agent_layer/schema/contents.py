"""This file holds how one content refers to another, so that a value that many steps share is stored once."""

from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

__all__ = ["refer_to", "resolve"]

_REFERENCE = "$content"
_MAX_REFERENCES: Final = 10_000
"""Agents may write references too, and twenty contents that each refer twice to the one before would be a million."""


def refer_to(content_hash: str) -> dict[str, str]:
    """Give what stands in a content's JSON where the content of this hash belongs."""
    return {_REFERENCE: content_hash}


def resolve(contents: Mapping[str, bytes], content_hash: str) -> object:
    """Read a content as JSON, with everything it refers to in place.

    Args:
        contents: JSON text by content hash.
        content_hash: which one.

    Returns:
        The value; a reference to a content that is not there, or the ten-thousandth and later, stays a reference.
    """
    return _resolve(contents, content_hash, iter(range(_MAX_REFERENCES + 1)))


def _resolve(contents: Mapping[str, bytes], content_hash: str, left: Iterator[int]) -> object:
    body = contents.get(content_hash)
    if body is None or next(left, None) is None:
        return refer_to(content_hash)
    return _resolve_in(contents, msgspec.json.decode(body), left)


def _resolve_in(contents: Mapping[str, bytes], value: object, left: Iterator[int]) -> object:
    if isinstance(value, list):
        return [_resolve_in(contents, item, left) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    if fields.keys() == {_REFERENCE} and isinstance(target := fields[_REFERENCE], str):
        return _resolve(contents, target, left)
    return {key: _resolve_in(contents, item, left) for key, item in fields.items()}
