"""Groups: the rollouts of one task that share a baseline."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema.record import Record, current_version
from agent_layer.schema.task import Split

Fill: TypeAlias = Literal["whole", "short", "dropped"]
"""``whole``: as many usable rollouts as requested. ``short``: fewer. ``dropped``: fewer, and nothing is delivered."""


class Group(Record, frozen=True, kw_only=True, tag="group"):
    """The rollouts of one round of a task, once it is closed. Never changes."""

    group_id: str
    run: str
    task_id: str
    closed_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    task_type: str = "default"
    split: Split = "train"
    group_size: int = 1
    """Rollouts requested."""
    trajectory_ids: list[str] = []
    """[num_accepted] in member order; shorter than group_size when some rollouts failed."""
    fill: Fill | None = None
    """None: written by a version without this field."""
    num_launched: int | None = None
    num_usable: int | None = None
    """Accepted rollouts with a reward."""
    num_surplus: int = 0
    """Rollouts that were cancelled because enough others had ended."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts, from first lease to acceptance."""
    surplus_seconds: float | None = None
    """Mean running time of cancelled rollouts; their full time would be longer. None: there were none."""
