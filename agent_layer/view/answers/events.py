"""What the stream of events says."""

from typing import Literal, TypeAlias

import msgspec

ChangeKind: TypeAlias = Literal["run", "trajectory", "step", "group", "update", "fleet"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Things of one kind that changed in a moment."""

    kind: ChangeKind
    runs: list[str]
    """Runs that they belong to, sorted; none for the fleet."""
    ids: list[str]
    """Runs, trajectories, groups, or updates as ``run/step``; at most 100."""
    num: int
    """All that changed, also those beyond ``ids``."""
