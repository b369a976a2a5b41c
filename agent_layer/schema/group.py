"""This file holds groups: the rollouts of one task that count together."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import Record, current_version
from agent_layer.schema.task import Split

Fill: TypeAlias = Literal["whole", "short", "dropped"]
"""``whole``: as many usable rollouts as asked for. ``short``: fewer. ``dropped``: fewer, so nothing is delivered."""


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
    fill: Fill | None = None
    """None: written before this was known."""
    num_launched: int | None = None
    num_usable: int | None = None
    """Accepted ones that have a reward."""
    num_surplus: int = 0
    """Rollouts that were running when enough others had ended, and were cancelled."""
    kept_seconds: float | None = None
    """Mean time of the usable ones, from their first lease to their acceptance."""
    surplus_seconds: float | None = None
    """Mean time that cancelled ones had run: what they would have taken is longer. None: there were none."""
