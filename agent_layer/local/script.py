"""This file holds scripts: the functions that write a scripted engine's answers."""

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from agent_layer.errors import BadInputError
from agent_layer.local.words import words_of
from agent_layer.schema.record import JsonObject

__all__ = ["Answer", "Asked", "Script", "echo", "load_script"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a script is asked to answer."""

    messages: list[JsonObject]
    tools: list[JsonObject] | None
    choice: int
    body: JsonObject
    """The whole request."""
    weights: Callable[[], str]
    """Gives the directory of the weights that are loaded right now."""

    @property
    def text(self) -> str:
        """Words of the last message."""
        return " ".join(words_of(self.messages[-1])) if self.messages else ""

    @property
    def turn(self) -> int:
        """Answers that the conversation already has."""
        return sum(message.get("role") == "assistant" for message in self.messages)


Answer: TypeAlias = str | JsonObject | Iterable[str]
"""A text, a whole message (say, with tool_calls), or words that are drawn one by one as they are sampled."""

Script: TypeAlias = Callable[[Asked], Answer]


def echo(asked: Asked) -> Answer:
    """Answer with what was said last."""
    return f"you said: {asked.text}"


def load_script(place: str) -> Script:
    """Load a script from ``FILE.py:function``.

    Raises: BadInputError: there is no such file or function.
    """
    path, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location("agent_layer_script", path) if Path(path).is_file() else None
    if spec is None or spec.loader is None:
        raise BadInputError(f"script {place!r}: expected FILE.py:function, found no such file; check the path")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(script := getattr(module, name, None)):
        raise BadInputError(f"script {place!r}: the file has no function {name!r}; check the name")
    return cast("Script", script)
