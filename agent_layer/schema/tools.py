"""This file holds which tools a record tells of: those that a model asked for, and those that answered."""

from collections.abc import Iterator
from typing import Final

from agent_layer.schema.observation import Observation
from agent_layer.schema.record import JsonObject, Record
from agent_layer.schema.step import Action, StepPart
from agent_layer.schema.untrusted import object_of, objects_of

__all__ = ["tools_asked", "tools_of"]

_LONGEST_NAME: Final = 128
"""Models ask for tools that do not exist, too."""


def tools_of(record: Record) -> Iterator[str]:
    """Names of tools, in order, each as often as it is told of."""
    match record:
        case StepPart():
            for action in record.actions or ():
                yield from tools_asked(action)
        case Observation():
            yield record.name
        case _:
            return


def tools_asked(action: Action) -> Iterator[str]:
    """Names of the tools that the model asked for, in order."""
    message: JsonObject = action.message or {}
    for call in objects_of(message.get("tool_calls")):
        name = object_of(call.get("function")).get("name", call.get("name"))
        if isinstance(name, str) and name:
            yield name[:_LONGEST_NAME]
