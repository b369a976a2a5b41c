"""A harder level after a number of groups."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from trainer_adapter.selection.part import Part


class GroupRamp(Part, frozen=True, tag="group_ramp"):
    """Move on when ``groups`` groups were trained at a level, whatever came of them."""

    groups: Annotated[int, Meta(ge=1, le=10_000)]

    def rises(self, successes: Sequence[float]) -> bool:
        """Return whether the task set moves on to its next level."""
        return len(successes) >= self.groups
