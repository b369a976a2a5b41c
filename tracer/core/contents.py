"""Contents: values of any kind as JSON text, stored once per trajectory."""

from collections.abc import Callable
from typing import TypeAlias, cast

import msgspec

from agent_layer.schema import Content, LogRecord, content_hash, json_text, refer_to
from tracer.core.rollout_handle import Rollout

Identity: TypeAlias = tuple[object, ...]

_LONG_TEXT = 1024
"""Characters. A longer message is recognised by identity, so that it is hashed once only."""

_INLINE_BYTES = 128
"""A longer value becomes a content of its own, to which later states refer."""


class ContentWriter:
    """Collects the contents that a record refers to, and writes them before that record."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self._fresh: dict[str, Content] = {}
        self._known: dict[Identity, tuple[str, object]] = {}

    def add(self, value: object) -> str:
        """Return the content hash of a value of any kind."""
        strings = _long_strings(value)
        if strings is None:
            return self.add_text(json_text(value))
        return self.add_once(tuple(map(id, strings)), strings, lambda: value)

    def add_once(self, identity: Identity, alive: object, read: Callable[[], object]) -> str:
        """Return the content hash recorded under this identity, else that of the value that ``read`` returns.

        Args:
            identity: the same only for the same content; ``id()`` of objects that cannot change will do.
            alive: keeps these objects alive, so that no other object gets their ids.
            read: returns the value.
        """
        known = self.rollout.messages.get(identity) or self._known.get(identity)
        if known is None:
            known = self._known[identity] = self.add_text(json_text(read())), alive
        return known[0]

    def add_text(self, body: bytes) -> str:
        """Return the content hash of JSON text."""
        key = content_hash(body)
        if key not in self.rollout.stored and key not in self._fresh:
            self._fresh[key] = Content(trajectory_id=self.rollout.trajectory_id, hash=key, body=body)
        return key

    def place(self, value: object) -> object:
        """Return the value as part of a larger content: inline when short, else as a reference."""
        body = json_text(value)
        return msgspec.Raw(body) if len(body) <= _INLINE_BYTES else refer_to(self.add_text(body))

    def place_items(self, values: list[object]) -> object:
        """Return a list as part of a larger content. Long items become contents, so that a list grows cheaply."""
        body = json_text(values)
        if len(body) <= _INLINE_BYTES * len(values):
            return self.place(msgspec.Raw(body))
        return self.place([self.place(value) for value in values])

    def write(self, *records: LogRecord) -> None:
        """Append the collected contents and the records that refer to them, in one write."""
        self.rollout.append(*self._fresh.values(), *records)
        self.rollout.stored.update(self._fresh)
        self.rollout.messages.update(self._known)
        self._fresh.clear()


def _long_strings(value: object) -> list[str] | None:
    """Return the field names and texts of a long message; None for anything else."""
    if type(value) is not dict:
        return None
    fields = cast("dict[object, object]", value)
    text = fields.get("content")
    if type(text) is not str or len(text) <= _LONG_TEXT:
        return None
    strings = [*fields, *fields.values()]
    return cast("list[str]", strings) if all(type(one) is str for one in strings) else None
