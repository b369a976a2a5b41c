"""More rollouts for tasks whose outcome is uncertain."""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from msgspec import Meta

from trainer_adapter.selection.allotment import allot_rollouts
from trainer_adapter.selection.part import Part


class VarianceShare(Part, frozen=True, tag="variance_share"):
    """Share rollouts in proportion to the standard deviation of a task's reward of 0 or 1, plus a floor.

    That deviation is sqrt(p (1 - p)) at success rate p. Shares in proportion to it give the least variance of a sum of
    means over strata (Neyman 1934).
    """

    floor: Annotated[float, Meta(gt=0)] = 0.1
    """Weight of a task that always succeeds, or never does."""
    minimum: Annotated[int, Meta(ge=2)] = 2
    """Fewest rollouts of a task."""
    memory: Annotated[float, Meta(ge=0, le=1)] = 0.7
    """Weight of a task's old success rate when new rollouts arrive."""

    def share(self, num_rollouts: int, rates: Sequence[float]) -> list[int]:
        """Return the rollouts of each task, [num_tasks]."""
        return allot_rollouts(num_rollouts, [sqrt(rate * (1 - rate)) + self.floor for rate in rates], self.minimum)
