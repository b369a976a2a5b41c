"""Tool uses: each is recorded as an observation before its output is returned to the agent."""

from typing import Literal

import msgspec

from agent_layer.schema import Observation, json_text, json_value, safe_repr
from tracer.core.scope import Scope

_MAX_OUTPUT_LENGTH = 1 << 20
"""Characters of the text, or bytes of the JSON, above which an output is cut."""


class ToolUse(msgspec.Struct, kw_only=True, eq=False):
    """One use of a tool. A framework and ``@tracer.tool`` may both see it; the inner layer records it, once."""

    scope: Scope
    name: str
    arguments: object = None
    call_id: str | None = None
    """Model call that requested the tool; None: the latest call of the same lineage."""
    use_id: str = ""
    started: float = 0.0
    is_taken: bool = False
    is_open: bool = True

    def __post_init__(self) -> None:
        clock = self.scope.rollout.clock
        self.use_id, self.started = clock.new_id(), clock.ticks()
        self.call_id = self.call_id or self.scope.lineage.latest_call
        self.scope.rollout.unfinished[self.use_id] = self.abandon

    def record(self, output: object, status: Literal["ok", "error"] | None = "ok") -> None:
        """Record the output of the tool."""
        if not self._close() or self.is_taken:
            return
        rollout, (kept, is_cut) = self.scope.rollout, _cut(output)
        rollout.append(
            Observation(
                trajectory_id=rollout.trajectory_id,
                observation_id=self.use_id,
                run=rollout.run,
                name=self.name,
                at=rollout.clock.now(),
                call_id=self.call_id,
                agent=self.scope.agent,
                arguments=json_value(self.arguments),
                output=kept,
                status=status,
                duration_seconds=rollout.clock.ticks() - self.started,
                truncated=is_cut,
            )
        )

    def record_error(self, error: BaseException) -> None:
        """Record that the tool failed. A tool that waits for a person has no output yet: it will run again."""
        if is_pause(error):
            self._close()
        else:
            self.record(safe_repr(error), status="error")

    def abandon(self) -> None:
        """Record that the agent no longer waits for the tool."""
        self.record(None, status=None)

    def _close(self) -> bool:
        """Close the use. Returns whether it was open."""
        was_open, self.is_open = self.is_open, False
        self.scope.rollout.unfinished.pop(self.use_id, None)
        return was_open


def is_pause(error: BaseException) -> bool:
    """Whether LangGraph raises this error to pause a node, or to hand over to another node."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)


def _cut(output: object) -> tuple[object, bool]:
    """Return (JSON value, False), or (beginning of the text, True) when the output is too long."""
    if isinstance(output, str):
        return json_value(output[:_MAX_OUTPUT_LENGTH]), len(output) > _MAX_OUTPUT_LENGTH
    text = json_text(output)
    is_long = len(text) > _MAX_OUTPUT_LENGTH
    return text[:_MAX_OUTPUT_LENGTH].decode("utf-8", "replace") if is_long else json_value(output), is_long


def adopt_tool_use(scope: Scope, name: str, arguments: object) -> ToolUse:
    """Return a tool use; it answers the model call of the framework's use when that is of the same tool."""
    outer = scope.tool
    if outer is None or not outer.is_open or outer.is_taken or outer.name != name:
        return ToolUse(scope=scope, name=name, arguments=arguments)
    outer.is_taken = True
    return ToolUse(scope=scope, name=name, arguments=arguments, call_id=outer.call_id)
