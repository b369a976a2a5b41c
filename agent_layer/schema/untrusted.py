"""This file holds how JSON that others wrote is looked into: it may be anything."""

from typing import Final, cast

import msgspec

from agent_layer.schema.record import JsonObject

__all__ = ["UNREADABLE", "object_of", "objects_of"]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""What reading raises: it is no JSON of this form, no UTF-8, nested too deep, or a number has no place."""


def object_of(value: object) -> JsonObject:
    """Give an object as it is, and an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def objects_of(value: object) -> list[JsonObject]:
    """Give the objects in a list; none where it is no list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]
