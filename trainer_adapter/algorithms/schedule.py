"""Numbers that follow from the step of a run alone, so that a run that was stopped continues where it was."""

from math import cos, pi
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Rate: TypeAlias = Annotated[float, Meta(ge=0)]
Shape: TypeAlias = Literal["constant", "linear", "cosine"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number that rises to ``start`` during the warm-up, then moves to ``end`` by the last step."""

    start: Rate
    end: Rate | None = None
    """None: as ``start``."""
    shape: Shape = "constant"
    warmup_steps: Annotated[int, Meta(ge=0)] = 0
    """Steps of a linear rise from 0; the first step is above 0."""
    num_steps: Annotated[int, Meta(ge=1)] | None = None
    """Step at which ``end`` is reached; None: the last of the run."""

    def __post_init__(self) -> None:
        """Raise ValueError for an end that a constant never reaches; msgspec names the option."""
        if self.shape == "constant" and self.end not in (None, self.start):
            raise ValueError(f"a constant never reaches its end {self.end:g}; set shape to linear or cosine")

    def value_at(self, step: int, run_steps: int) -> float:
        """Return the value at one step.

        Args:
            step: counted from 0.
            run_steps: number of steps of the run.
        """
        if step < self.warmup_steps:
            return self.start * (step + 1) / self.warmup_steps
        span = (self.num_steps or run_steps) - 1 - self.warmup_steps
        progress = min(1.0, (step - self.warmup_steps) / span) if span > 0 else 1.0
        end = self.start if self.end is None else self.end
        match self.shape:
            case "constant":
                return self.start
            case "linear":
                return self.start + (end - self.start) * progress
            case "cosine":
                return end + (self.start - end) * (1 + cos(pi * progress)) / 2
