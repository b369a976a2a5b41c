"""This file holds policy versions: which weights answered."""

import msgspec

from agent_layer.schema.record import Record, current_version

__all__ = ["PolicyVersion"]


class PolicyVersion(Record, frozen=True, kw_only=True, tag="policy_version"):
    """One set of weights that engines may serve. Number 0 is registered before the first call of a run."""

    run: str
    number: int
    location: str
    """Directory or model name that an engine can load."""
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    weights_hash: str | None = None
    training_step: int | None = None
    """Updates that led to it; None for weights that this run did not train."""
