"""This file holds tools while they run: what one gave is recorded before it is handed on."""

from typing import Literal

import msgspec

from agent_layer.schema.observation import Observation
from tracer.contents import describe, json_text, json_value
from tracer.context import Scope

__all__ = ["ToolUse", "is_pause", "take_over_tool"]

_LONGEST_OUTPUT = 1 << 20
"""Characters, of the text or else of the JSON, above which an output is cut."""


class ToolUse(msgspec.Struct, kw_only=True, eq=False):
    """One use of a tool. A framework and ``@tracer.tool`` may both see it; the inner one records it, once."""

    scope: Scope
    name: str
    arguments: object = None
    call_id: str | None = None
    """Model call that asked for it; None: the latest of the same line of thought."""
    use_id: str = ""
    started: float = 0.0
    is_taken: bool = False
    is_open: bool = True

    def __post_init__(self) -> None:
        stamps = self.scope.rollout.stamps
        self.use_id, self.started = stamps.new_id(), stamps.ticks()
        self.call_id = self.call_id or self.scope.trail.latest_call
        self.scope.rollout.unfinished[self.use_id] = self.give_up

    def record(self, output: object, status: Literal["ok", "error"] | None = "ok") -> None:
        """Record what the tool gave."""
        if not self._close() or self.is_taken:
            return
        rollout, (kept, is_cut) = self.scope.rollout, _cut(output)
        rollout.append(
            Observation(
                trajectory_id=rollout.trajectory_id,
                observation_id=self.use_id,
                run=rollout.run,
                name=self.name,
                at=rollout.stamps.now(),
                call_id=self.call_id,
                agent=self.scope.agent,
                arguments=json_value(self.arguments),
                output=kept,
                status=status,
                duration_seconds=rollout.stamps.ticks() - self.started,
                truncated=is_cut,
            )
        )

    def record_error(self, error: BaseException) -> None:
        """Record that the tool failed; one that waits for a person will run again, and has given nothing yet."""
        if is_pause(error):
            self._close()
        else:
            self.record(describe(error), status="error")

    def give_up(self) -> None:
        """Record that nobody waits for the tool any more."""
        self.record(None, status=None)

    def _close(self) -> bool:
        """Tell whether the use was open until now."""
        was_open, self.is_open = self.is_open, False
        self.scope.rollout.unfinished.pop(self.use_id, None)
        return was_open


def is_pause(error: BaseException) -> bool:
    """Whether LangGraph raises this to leave a node that it will come back to, or to hand over to another one."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)


def _cut(output: object) -> tuple[object, bool]:
    """Give (the output as a JSON value, False), or, where it is too long, (the beginning of its text, True)."""
    if isinstance(output, str):
        return json_value(output[:_LONGEST_OUTPUT]), len(output) > _LONGEST_OUTPUT
    text = json_text(output)
    is_long = len(text) > _LONGEST_OUTPUT
    return text[:_LONGEST_OUTPUT].decode("utf-8", "replace") if is_long else json_value(output), is_long


def take_over_tool(scope: Scope, name: str, arguments: object) -> ToolUse:
    """Give a use of this tool that answers the same model call as the one a framework runs, if that is of this tool."""
    outer = scope.tool
    if outer is None or not outer.is_open or outer.is_taken or outer.name != name:
        return ToolUse(scope=scope, name=name, arguments=arguments)
    outer.is_taken = True
    return ToolUse(scope=scope, name=name, arguments=arguments, call_id=outer.call_id)
