"""This file holds how streams are watched that are objects with ``__next__`` or ``__anext__``, item by item."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Protocol, cast

from tracer.integrations.unfinished import Unfinished

__all__ = ["watch_items"]

_RECORD = "_tracer_record"
_WATCHED: set[tuple[type, str]] = set()


class _Item(Protocol):
    """One item of a stream: a pydantic model."""

    def model_dump_json(self, *, exclude_none: bool, warnings: bool) -> str: ...


def watch_items(stream: object, record: Unfinished) -> None:
    """Record what this stream gives, before each item is handed on."""
    _watch_class(type(stream), "__next__", _see_items)
    _watch_class(type(stream), "__anext__", _see_items_async)
    setattr(stream, _RECORD, record)


def _watch_class(kind: type, name: str, see: Callable[..., object]) -> None:
    """Let streams of this class be watched: the language looks their methods up in the class that defines them."""
    owner = next((one for one in kind.__mro__ if name in one.__dict__), None)
    if owner is not None and (owner, name) not in _WATCHED:
        _WATCHED.add((owner, name))
        setattr(owner, name, see(getattr(owner, name)))


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
