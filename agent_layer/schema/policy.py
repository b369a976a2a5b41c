"""This file holds policy versions: which weights answered."""

from agent_layer.schema.record import SCHEMA_VERSION, Record

__all__ = ["PolicyVersion"]


class PolicyVersion(Record, tag="policy_version"):
    """One set of weights that engines may serve. Number 0 is registered before the first call of a run."""

    run: str
    number: int
    location: str
    """Directory or model name that an engine can load."""
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = SCHEMA_VERSION
    weights_hash: str | None = None
    training_step: int | None = None
    """Updates that led to it; None for weights that this run did not train."""
