"""Streamed chat messages: the one rule by which the pieces of a message, and of its tool calls, are joined.

Gateway, translated events and tracer join with it, so that their accounts of one stream agree.

Pieces of a tool call: ids decide. A piece with an id that its index does not have yet begins another call. A piece
without an id continues the last call of its index; without an index too, the last call, unless both name a tool.
Names, ids and types come whole, and the first that is not empty stays. Arguments come in pieces.
"""

from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from agent_layer.schema.messages import as_json_object, as_json_objects
from agent_layer.schema.record import JsonObject

_WHOLE: Final = frozenset({"role", "id", "type", "name"})
"""Texts that are sent whole; all others are sent in pieces."""


@dataclass(slots=True, eq=False)
class GrowingCall:
    """A tool call, as far as it was streamed."""

    call_id: str = ""
    """Empty: no piece named it."""
    name: str = ""
    """Name of the tool; empty: no piece named it."""
    _fields: JsonObject = field(default_factory=dict[str, object])
    _function: JsonObject = field(default_factory=dict[str, object])
    _arguments: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        """JSON text, so far."""
        return "".join(self._arguments)

    def add(self, piece: JsonObject) -> str:
        """Take a piece; return what it adds to the arguments."""
        function = as_json_object(piece.get("function"))
        for name, value in piece.items():
            if name not in ("index", "function"):
                _join_into(self._fields, name, value)
        for name, value in function.items():
            if name != "arguments":
                _join_into(self._function, name, value)
        self.call_id, self.name = _to_text(self._fields.get("id")), _to_text(self._function.get("name"))
        added = function.get("arguments")
        if added is None:
            return ""
        text = added if isinstance(added, str) else msgspec.json.encode(added).decode()
        self._arguments.append(text)
        return text

    def whole(self) -> JsonObject:
        """The call that all pieces make."""
        arguments = {"arguments": self.arguments} if self._arguments else {}
        return {**self._fields, "function": {**self._function, **arguments}}


@dataclass(slots=True)
class GrowingCalls:
    """Tool calls of one message, in the order in which they began."""

    calls: list[GrowingCall] = field(default_factory=list[GrowingCall])
    _by_id: dict[tuple[str | None, str], GrowingCall] = field(default_factory=dict[tuple[str | None, str], GrowingCall])
    """Calls by index and id, and by id alone."""
    _last: dict[str, GrowingCall] = field(default_factory=dict[str, GrowingCall])
    """Last call by index."""

    def add(self, piece: JsonObject) -> tuple[GrowingCall, str]:
        """Take a piece; return the call to which it belongs, and what it adds to the call's arguments."""
        index = None if (found := piece.get("index")) is None else str(found)
        call_id = _to_text(piece.get("id"))
        call = self._find(index, call_id, as_json_object(piece.get("function")))
        if call is None:
            call = GrowingCall()
            self.calls.append(call)
        text = call.add(piece)
        if index is not None:
            self._last[index] = call
        if call_id:
            self._by_id[index, call_id] = self._by_id[None, call_id] = call
        return call, text

    def _find(self, index: str | None, call_id: str, function: JsonObject) -> GrowingCall | None:
        if call_id and (known := self._by_id.get((index, call_id))):
            return known
        if index is not None:
            last = self._last.get(index)
            return last if last and not (call_id and last.call_id) else None
        last = self.calls[-1] if self.calls else None
        is_other = last and ((call_id and last.call_id) or (function.get("name") and last.name))
        return None if is_other else last


@dataclass(slots=True)
class GrowingMessage:
    """A message, as far as it was streamed."""

    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _others: JsonObject = field(default_factory=dict[str, object])
    _calls: GrowingCalls = field(default_factory=GrowingCalls)

    def add(self, delta: JsonObject) -> None:
        """Take a chunk."""
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in as_json_objects(value):
                    self._calls.add(piece)
            elif isinstance(value, str) and name not in _WHOLE:
                self._texts.setdefault(name, []).append(value)
            else:
                _join_into(self._others, name, value)

    def whole(self) -> JsonObject:
        """The message that all chunks make."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        message: JsonObject = {"role": "assistant", "content": None, **self._others, **texts}
        return {**message, "tool_calls": [call.whole() for call in self._calls.calls]} if self._calls.calls else message


def _join_into(fields: JsonObject, name: str, piece: object) -> None:
    """Join a member's piece to what came of it before."""
    before = fields.get(name)
    if piece is None or (before and name in _WHOLE):
        return
    if isinstance(before, str) and isinstance(piece, str) and name not in _WHOLE:
        fields[name] = before + piece
    elif isinstance(before, dict) and isinstance(piece, dict):
        fields[name] = _joined(cast("JsonObject", before), cast("JsonObject", piece))
    elif isinstance(before, list) and isinstance(piece, list):
        fields[name] = _joined_items(cast("list[object]", before), cast("list[object]", piece))
    else:
        fields[name] = piece


def _joined(before: JsonObject, piece: JsonObject) -> JsonObject:
    joined = dict(before)
    for name, value in piece.items():
        _join_into(joined, name, value)
    return joined


def _joined_items(before: list[object], pieces: list[object]) -> list[object]:
    """Join the items of one ``index``; all others are items of their own."""
    items = list(before)
    for piece in pieces:
        index = as_json_object(piece).get("index")
        places = (at for at, item in enumerate(items) if as_json_object(item).get("index") == index)
        place = None if index is None else next(places, None)
        if place is None:
            items.append(piece)
        else:
            items[place] = _joined(as_json_object(items[place]), as_json_object(piece))
    return items


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
