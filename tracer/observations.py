"""This file holds tools while they run: what one gave is recorded before it is handed on."""

import time
from contextvars import ContextVar
from typing import Literal

import msgspec

from agent_layer.schema.ids import new_id
from agent_layer.schema.observation import Observation
from tracer.contents import json_text, json_value
from tracer.context import Scope

__all__ = ["ToolUse", "announce_tool", "take_over_tool"]

_LONGEST_OUTPUT = 1 << 20
"""Characters, of the text or else of the JSON, above which an output is cut."""


class ToolUse(msgspec.Struct, kw_only=True, eq=False):
    """One use of a tool. A framework and ``@tracer.tool`` may both see it; the inner one records it."""

    scope: Scope
    name: str
    arguments: object = None
    call_id: str | None = None
    """Model call that asked for it; None: the latest of the same line of thought."""
    started: float = msgspec.field(default_factory=time.perf_counter)
    is_taken: bool = False
    is_open: bool = True

    def __post_init__(self) -> None:
        self.call_id = self.call_id or self.scope.trail.latest_call

    def record(self, output: object, status: Literal["ok", "error"] = "ok") -> None:
        """Record what the tool gave."""
        self.is_open = False
        if self.is_taken:
            return
        kept, is_cut = _cut(output)
        self.scope.rollout.append(
            Observation(
                trajectory_id=self.scope.rollout.trajectory_id,
                observation_id=new_id(),
                run=self.scope.rollout.run,
                name=self.name,
                at=time.time(),
                call_id=self.call_id,
                agent=self.scope.agent,
                arguments=json_value(self.arguments),
                output=kept,
                status=status,
                duration_seconds=time.perf_counter() - self.started,
                truncated=is_cut,
            )
        )

    def record_error(self, error: BaseException) -> None:
        """Record that the tool failed."""
        self.record(repr(error), status="error")


def _cut(output: object) -> tuple[object, bool]:
    """Give (the output as a JSON value, False), or, where it is too long, (the beginning of its text, True)."""
    if isinstance(output, str):
        return json_value(output[:_LONGEST_OUTPUT]), len(output) > _LONGEST_OUTPUT
    text = json_text(output)
    is_long = len(text) > _LONGEST_OUTPUT
    return text[:_LONGEST_OUTPUT].decode("utf-8", "replace") if is_long else json_value(output), is_long


_ANNOUNCED: ContextVar[ToolUse | None] = ContextVar("tracer_tool", default=None)


def announce_tool(use: ToolUse) -> ToolUse:
    """Let the tool's own function, when it is under ``@tracer.tool``, record the use instead."""
    _ANNOUNCED.set(use)
    return use


def take_over_tool(scope: Scope, name: str, arguments: object) -> ToolUse:
    """Give a use of this tool that answers the same model call as the announced one, if that is of this tool."""
    outer = _ANNOUNCED.get()
    if outer is None or not outer.is_open or outer.is_taken or outer.name != name:
        return ToolUse(scope=scope, name=name, arguments=arguments)
    outer.is_taken = True
    return ToolUse(scope=scope, name=name, arguments=arguments, call_id=outer.call_id)
