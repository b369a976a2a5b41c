"""This file holds how the items of the responses API become chat messages.

Of one answer there are several items (reasoning, message, function calls); they are one assistant message again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.turns import (
    assistant_message,
    content_of,
    image_part,
    objects_in,
    text_part,
    tool_call,
)
from agent_layer.schema.record import JsonObject

__all__ = ["messages_of"]


def messages_of(items: Iterable[JsonObject]) -> list[JsonObject]:
    """Give the chat messages that these items stand for.

    Raises: BadInputError: an item of a kind that only OpenAI's own servers know.
    """
    turns = _Turns()
    for item in items:
        turns.take(item)
    turns.close()
    return turns.messages


@dataclass(slots=True)
class _Turns:
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    _thoughts: list[str] = field(default_factory=list[str])
    _texts: list[str] | None = None
    _calls: list[JsonObject] = field(default_factory=list[JsonObject])

    def take(self, item: JsonObject) -> None:
        match item:
            case {"type": "reasoning"}:
                self._think(item)
            case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
                self._calls.append(tool_call(call_id, name, arguments))
            case {"type": "function_call_output", "call_id": str(call_id), "output": output}:
                self._add({"role": "tool", "tool_call_id": call_id, "content": content_of(_parts(output))})
            case {"role": "assistant", "content": content}:
                self._say([str(part.get("text") or part.get("refusal") or "") for part in objects_in(content)])
            case {"role": str(role), "content": content}:
                self._add({"role": role, "content": content_of(_parts(content))})
            case _:
                raise BadInputError(
                    f"responses request: expected items of type message, reasoning, function_call or"
                    f" function_call_output, found {item.get('type')!r}; only OpenAI's own servers know it"
                )

    def close(self) -> None:
        """End the assistant's turn, if it is one."""
        if self._thoughts or self._texts is not None or self._calls:
            self.messages.append(assistant_message(self._texts or [], self._thoughts, self._calls))
        self._thoughts, self._texts, self._calls = [], None, []

    def _think(self, item: JsonObject) -> None:
        if self._texts is not None or self._calls:
            self.close()
        shown = objects_in(item.get("content")) or objects_in(item.get("summary"))
        self._thoughts += [str(part.get("text", "")) for part in shown]

    def _say(self, texts: list[str]) -> None:
        if self._texts is not None or self._calls:
            self.close()
        self._texts = texts

    def _add(self, message: JsonObject) -> None:
        self.close()
        self.messages.append(message)


def _parts(content: object) -> list[JsonObject]:
    return [_part(part) for part in objects_in(content)]


def _part(part: JsonObject) -> JsonObject:
    """Translate what chat completions know; what they do not, the engine may."""
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return text_part(text)
        case {"type": "input_image", "image_url": str(url)}:
            return image_part(url, part.get("detail"))
        case {"type": "input_file"}:
            return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
        case _:
            return part
