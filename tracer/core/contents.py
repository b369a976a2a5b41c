"""This file holds how values become contents: JSON text of whatever there is, stored once per trajectory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.contents import refer_to
from agent_layer.schema.ids import content_hash
from agent_layer.schema.step import Content

if TYPE_CHECKING:
    from tracer.handle import Rollout

__all__ = ["Contents", "Identity", "describe", "json_text", "json_value"]

Identity: TypeAlias = tuple[object, ...]

_LONG_TEXT = 1024
"""A message with a longer text is worth to be known again without hashing it."""

_INLINE_BYTES = 128
"""A longer value becomes a content of its own: later states that hold it too only refer to it."""


class Contents:
    """Gathers what one record refers to, and writes it before that record."""

    def __init__(self, rollout: "Rollout") -> None:
        self.rollout = rollout
        self._fresh: dict[str, Content] = {}
        self._known: dict[Identity, tuple[str, object]] = {}

    def add(self, value: object) -> str:
        """Give the content hash of a value of any kind."""
        strings = _long_strings(value)
        if strings is None:
            return self.add_text(json_text(value))
        return self.add_once(tuple(map(id, strings)), strings, lambda: value)

    def add_once(self, identity: Identity, alive: object, read: Callable[[], object]) -> str:
        """Give the content hash of what is recorded under this identity; if nothing is, of what ``read`` gives.

        Args:
            identity: the same only for the same content; ``id()`` of objects that cannot change will do.
            alive: holds these objects, so that no others get their ids.
            read: makes the value.
        """
        known = self.rollout.messages.get(identity) or self._known.get(identity)
        if known is None:
            known = self._known[identity] = self.add_text(json_text(read())), alive
        return known[0]

    def add_text(self, body: bytes) -> str:
        """Give the content hash of JSON text."""
        key = content_hash(body)
        if key not in self.rollout.stored and key not in self._fresh:
            self._fresh[key] = Content(trajectory_id=self.rollout.trajectory_id, hash=key, body=body)
        return key

    def place(self, value: object) -> object:
        """Give what stands for the value inside a larger content: itself when short, else a reference."""
        body = json_text(value)
        return msgspec.Raw(body) if len(body) <= _INLINE_BYTES else refer_to(self.add_text(body))

    def place_items(self, values: list[object]) -> object:
        """Give what stands for a list: where its items are long, each is a content, so that a list may grow cheaply."""
        body = json_text(values)
        if len(body) <= _INLINE_BYTES * len(values):
            return self.place(msgspec.Raw(body))
        return self.place([self.place(value) for value in values])

    def write(self, *records: LogRecord) -> None:
        """Append the gathered contents and the records that refer to them, in one write."""
        self.rollout.append(*self._fresh.values(), *records)
        self.rollout.stored.update(self._fresh)
        self.rollout.messages.update(self._known)
        self._fresh.clear()


def json_text(value: object) -> bytes:
    """Encode a value of any kind as JSON; what JSON cannot hold is replaced by its ``repr``."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: too deep, or changed by another thread
        return _ENCODER.encode(describe(value))


def json_value(value: object) -> object:
    """Copy a value of any kind as a JSON value that a record can hold."""
    if value is None or type(value) in (bool, float) or (type(value) is str and value.isascii()):
        return value
    found = msgspec.json.decode(json_text(value))
    try:
        msgspec.msgpack.encode(found)
    except OverflowError:  # an integer of more than 64 bits
        return describe(value)
    return found


def describe(value: object) -> str:
    """Give the ``repr`` of a value of any kind, an error included; one that fails is no reason to fail an agent."""
    try:
        said = repr(value)
    except Exception as error:  # noqa: BLE001 - code of the agent's, which may raise anything
        said = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return said.encode("utf-8", "backslashreplace").decode()


def _long_strings(value: object) -> list[str] | None:
    """Give the names and texts of a message that is worth remembering; None for anything else."""
    if type(value) is not dict:
        return None
    fields = cast("dict[object, object]", value)
    text = fields.get("content")
    if type(text) is not str or len(text) <= _LONG_TEXT:
        return None
    strings = [*fields, *fields.values()]
    return cast("list[str]", strings) if all(type(one) is str for one in strings) else None


def _stand_in(value: object) -> object:
    """Give what stands in JSON for an object that msgspec does not know: its fields, else its ``repr``."""
    try:
        dump = getattr(value, "model_dump", None)
        return dump(mode="json") if callable(dump) else describe(value)
    except Exception:  # noqa: BLE001 - code of the agent's, which may raise anything
        return describe(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_stand_in)
