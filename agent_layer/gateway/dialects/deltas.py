"""This file holds how the chunks of a streamed message add up: texts are joined, tool calls are joined by index."""

from dataclasses import dataclass, field
from typing import cast

from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import object_of, objects_of

__all__ = ["GrowingMessage"]


@dataclass(slots=True)
class GrowingMessage:
    """A message, as far as it was streamed."""

    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _others: JsonObject = field(default_factory=dict[str, object])
    _calls: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def add(self, delta: JsonObject) -> None:
        """Take a chunk."""
        for name, value in delta.items():
            if name == "tool_calls":
                self._add_calls(objects_of(value))
            elif isinstance(value, str) and name != "role":
                self._texts.setdefault(name, []).append(value)
            elif value is not None:
                self._others[name] = value

    def whole(self) -> JsonObject:
        """The message that all chunks make."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        message: JsonObject = {"role": "assistant", "content": None, **self._others, **texts}
        return {**message, "tool_calls": list(self._calls.values())} if self._calls else message

    def _add_calls(self, deltas: list[JsonObject]) -> None:
        for delta in deltas:
            call = self._calls.setdefault(str(delta.get("index", len(self._calls))), {"function": {}})
            function = cast("dict[str, str]", call["function"])
            for name, value in object_of(delta.get("function")).items():
                text = "" if value is None else str(value)
                function[name] = function.get(name, "") + text if name == "arguments" else text
            known = {name: value for name, value in delta.items() if value is not None}
            call |= {name: value for name, value in known.items() if name not in ("index", "function")}
