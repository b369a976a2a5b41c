"""This file holds what a comparison of index and objects finds."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.store.figures import Figures

__all__ = ["CheckReport", "Finding", "FindingKind"]

FindingKind: TypeAlias = Literal["corrupt", "unindexed", "missing", "misfiled", "undead", "short", "lost"]
"""``corrupt``: bytes of a segment or blob are not what they should be, only a copy helps. ``unindexed``: the index
lacks something that a segment says. ``missing``: the index names bytes that are not there. ``misfiled``: searches do
not find a trajectory as its row says. ``undead``: the index does not know that something was deleted. ``short``: an
accepted attempt lacks calls that its gateway counted. ``lost``: a blob is gone. Nothing brings these back."""

_BEYOND_REPAIR: frozenset[str] = frozenset({"corrupt", "short", "lost"})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between index and objects."""

    kind: FindingKind
    subject: str
    """Segment name or trajectory id."""
    detail: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and every difference."""

    num_segments: int
    num_trajectories: int
    findings: list[Finding]
    repaired: bool = False
    """All findings that can be mended are."""
    figures: Figures
    """What of each run's calls should alarm."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong any more."""
        return not self.findings or (self.repaired and all(one.kind not in _BEYOND_REPAIR for one in self.findings))
