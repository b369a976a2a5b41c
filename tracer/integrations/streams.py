"""This file holds how streams are watched that are objects with ``__next__`` or ``__anext__``, item by item."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Protocol, cast

from tracer.integrations.unfinished import Unfinished

__all__ = ["watch_class", "watch_items"]

_RECORD = "_tracer_record"


class _Item(Protocol):
    """One item of a stream: a pydantic model."""

    def model_dump_json(self, *, exclude_none: bool, warnings: bool) -> str: ...


def watch_class(kind: type) -> None:
    """Make streams of this class ones that can be watched; the language looks up their methods in the class."""
    if (advance := kind.__dict__.get("__next__")) is not None:
        setattr(kind, "__next__", _see_items(advance))  # noqa: B010 - a method of a foreign class
    if (advance := kind.__dict__.get("__anext__")) is not None:
        setattr(kind, "__anext__", _see_items_async(advance))  # noqa: B010 - the same


def watch_items(stream: object, record: Unfinished) -> None:
    """Record what this stream gives, before each item is handed on."""
    setattr(stream, _RECORD, record)


def _see_items(advance: Callable[[object], object]) -> Callable[[object], object]:
    @wraps(advance)
    def watched(stream: object) -> object:
        record = cast("Unfinished | None", getattr(stream, _RECORD, None))
        if record is None:
            return advance(stream)
        try:
            item = advance(stream)
        except BaseException as end:
            record.end(is_whole=isinstance(end, StopIteration))
            raise
        record.see(_text(item))
        return item

    return watched


def _see_items_async(advance: Callable[[object], Awaitable[object]]) -> Callable[[object], Awaitable[object]]:
    @wraps(advance)
    async def watched(stream: object) -> object:
        record = cast("Unfinished | None", getattr(stream, _RECORD, None))
        if record is None:
            return await advance(stream)
        try:
            item = await advance(stream)
        except BaseException as end:
            record.end(is_whole=isinstance(end, StopAsyncIteration))
            raise
        record.see(_text(item))
        return item

    return watched


def _text(item: object) -> str:
    return cast("_Item", item).model_dump_json(exclude_none=True, warnings=False)
