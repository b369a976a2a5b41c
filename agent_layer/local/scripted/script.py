"""This file holds how a scripted engine speaks: a script's answer, word by word, with what each adds to the message."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from agent_layer.local.script import Answer
from agent_layer.local.words import END, call_words, thought_words
from agent_layer.schema.record import JsonObject

__all__ = ["Speech"]


@dataclass(frozen=True, slots=True)
class Speech:
    """One choice of an answer."""

    message: JsonObject
    """May also say ``finish_reason`` and ``stop_reason``, and ``error`` for an answer that breaks off."""

    @classmethod
    def of(cls, answer: Answer) -> "Speech":
        """Take what a script wrote."""
        return cls(cast("JsonObject", answer) if isinstance(answer, dict) else {"content": answer})

    def words(self) -> Iterator[tuple[str, JsonObject]]:
        """Give (word, delta) in the order of sampling, the end of turn included."""
        thought = str(self.message.get("reasoning") or "")
        for index, word in enumerate(thought_words(thought)):
            yield word, {"reasoning": thought} if index == 0 else {}
        spoken = self.message.get("content") or ""
        for index, word in enumerate(spoken.split() if isinstance(spoken, str) else cast("Iterable[str]", spoken)):
            yield word, {"content": f" {word}" if index else word}
        for index, call in enumerate(self._calls):
            yield from _call(index, call)
        yield END, {}

    def ending(self, body: JsonObject) -> JsonObject:
        """Say why it ends, as vLLM does: a tool that was named is called without being the reason."""
        is_called = self._calls and not isinstance(body.get("tool_choice"), dict)
        reason = self.message.get("finish_reason") or ("tool_calls" if is_called else "stop")
        return {"finish_reason": reason, "stop_reason": self.message.get("stop_reason")}

    @property
    def _calls(self) -> list[JsonObject]:
        return cast("list[JsonObject]", self.message.get("tool_calls") or [])


def _call(index: int, call: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Speak a tool call: its name with the first word, its arguments with the second and the last."""
    function = cast("dict[str, str]", call["function"])
    arguments = function.get("arguments") or ""
    half = len(arguments) // 2
    words = list(call_words([call]))
    begun = {**call, "index": index, "function": {**function, "arguments": ""}}
    for place, word in enumerate(words):
        more = {1: arguments[:half], len(words) - 1: arguments[half:]}.get(place)
        delta = begun if place == 0 else {"index": index, "function": {"arguments": more}}
        yield word, {"tool_calls": [delta]} if place == 0 or more else {}
