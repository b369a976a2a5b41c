"""Contents: values of any kind as JSON text, stored once per trajectory."""

from collections.abc import Callable
from typing import TypeAlias, cast

import msgspec

from agent_layer.schema import Content, LogRecord, content_hash, refer_to
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


def json_text(value: object) -> bytes:
    """Encode a value of any kind as JSON; values without a JSON form are replaced by their ``repr``."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: too deep, or changed by another thread
        return _ENCODER.encode(safe_repr(value))


def json_value(value: object) -> object:
    """Return a copy of any value as JSON that a record can store."""
    if value is None or type(value) in (bool, float) or (type(value) is str and value.isascii()):
        return value
    found = msgspec.json.decode(json_text(value))
    try:
        msgspec.msgpack.encode(found)
    except OverflowError:  # an integer of more than 64 bits
        return safe_repr(value)
    return found


def safe_repr(value: object) -> str:
    """Return the ``repr`` of any value, errors included. Never raises: a failing ``repr`` must not fail an agent."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - code of the agent's, which may raise anything
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


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


def _stand_in(value: object) -> object:
    """Return a JSON form of an object that msgspec does not know: its fields, else its ``repr``."""
    try:
        dump = getattr(value, "model_dump", None)
        return dump(mode="json") if callable(dump) else safe_repr(value)
    except Exception:  # noqa: BLE001 - code of the agent's, which may raise anything
        return safe_repr(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_stand_in)
