"""This file holds groups: the rollouts of one task that count together."""

import msgspec

from agent_layer.schema.record import Record, current_version
from agent_layer.schema.task import Split

__all__ = ["Group"]


class Group(Record, frozen=True, kw_only=True, tag="group"):
    """The accepted and failed tries at one asking for a task, decided once and for all."""

    group_id: str
    run: str
    task_id: str
    closed_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    task_type: str = "default"
    split: Split = "train"
    group_size: int = 1
    """Rollouts asked for."""
    trajectory_ids: list[str] = []
    """[num_accepted] in member order; shorter than group_size when some rollouts died."""
