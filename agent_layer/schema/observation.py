"""This file holds observations: what a tool or an environment answered."""

from typing import Literal

import msgspec

from agent_layer.schema.record import Record, current_version

__all__ = ["Observation"]


class Observation(Record, frozen=True, kw_only=True, tag="observation"):
    """One answer of a tool or environment."""

    trajectory_id: str
    observation_id: str
    run: str
    name: str
    at: float
    """When the answer was complete; seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    call_id: str | None = None
    """The model call that led to it; None when nothing was called before."""
    agent: str | None = None
    arguments: object = None
    output: object = None
    status: Literal["ok", "error"] | None = None
    duration_seconds: float | None = None
    truncated: bool = False
    """The output was longer than is kept."""
