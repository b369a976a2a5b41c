"""More rollouts for tasks that fail.

A task that always succeeds, or never does, teaches nothing, because its rewards are equal. Tasks that still fail get
more rollouts, so that one success among many attempts becomes likely.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from trainer_adapter.selection.allotment import allot_rollouts
from trainer_adapter.selection.part import Part


class SuccessShare(Part, frozen=True, tag="success_share"):
    """Share rollouts in proportion to (1 - success rate) + floor."""

    floor: Annotated[float, Meta(gt=0)] = 0.3
    """Weight of a task that always succeeds; the larger, the more even the shares."""
    minimum: Annotated[int, Meta(ge=2)] = 2
    """Fewest rollouts of a task."""
    memory: Annotated[float, Meta(ge=0, le=1)] = 0.7
    """Weight of a task's old success rate when new rollouts arrive."""

    def share(self, num_rollouts: int, rates: Sequence[float]) -> list[int]:
        """Return the rollouts of each task, [num_tasks]."""
        return allot_rollouts(num_rollouts, [1 - rate + self.floor for rate in rates], self.minimum)
