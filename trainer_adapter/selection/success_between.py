"""Tasks that are neither solved nor out of reach."""

from typing import Annotated

from msgspec import Meta

from agent_layer.schema import Task
from trainer_adapter.selection.part import Part


class SuccessBetween(Part, frozen=True, tag="success_between"):
    """Admit tasks whose recent success rate is above ``low`` and below ``high``, and those without one."""

    low: Annotated[float, Meta(ge=0, le=1)] = 0.0
    high: Annotated[float, Meta(ge=0, le=1)] = 1.0
    retry: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of the turns of other tasks in which they are tried all the same, because the policy changes."""

    def __post_init__(self) -> None:
        """Check that a rate can be between the bounds."""
        if not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        return success is None or self.low < success < self.high
