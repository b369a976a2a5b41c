"""Tasks by their labels."""

from typing import Annotated, ClassVar

from msgspec import Meta

from agent_layer.schema import Task
from trainer_adapter.selection.part import Part


class Labelled(Part, frozen=True, tag="labelled"):
    """Admit tasks whose label ``label`` has one of these values."""

    label: str
    values: Annotated[list[str], Meta(min_length=1)]
    retry: ClassVar[float] = 0.0

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        return task.labels.get(self.label) in self.values
