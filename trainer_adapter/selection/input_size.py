"""Tasks whose input is short enough."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agent_layer.schema import Task
from trainer_adapter.selection.part import Part


class InputSize(Part, frozen=True, tag="input_size"):
    """Admit tasks whose input has at most this many characters; an input that is no text is measured as JSON.

    A token has about four characters of English. The prompt itself is known only to the agent.
    """

    most: Annotated[int, Meta(ge=1)]
    retry: ClassVar[float] = 0.0

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        text = task.input if isinstance(task.input, str) else msgspec.json.encode(task.input).decode()
        return len(text) <= self.most
