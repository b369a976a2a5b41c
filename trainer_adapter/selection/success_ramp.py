"""A harder level once the present one is mastered."""

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

from msgspec import Meta

from trainer_adapter.selection.part import Part


class SuccessRamp(Part, frozen=True, tag="success_ramp"):
    """Move on when the mean success of the last ``groups`` groups reaches ``above``."""

    above: Annotated[float, Meta(gt=0, le=1)] = 0.8
    groups: Annotated[int, Meta(ge=1, le=10_000)] = 64

    def rises(self, successes: Sequence[float]) -> bool:
        """Return whether the task set moves on to its next level."""
        return len(successes) >= self.groups and fmean(successes[-self.groups :]) >= self.above
