"""This file holds the comparison of index and objects, both ways, and how they are made one again."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.store.index import Index, Span
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.rebuild import Progress, index_segment, list_segments, read_segment, reindex

__all__ = ["CheckReport", "Finding", "FindingKind", "check_store"]

FindingKind: TypeAlias = Literal["corrupt", "unindexed", "missing"]
"""``corrupt``: bytes of a segment are not what they should be, only a copy of it helps. ``unindexed``: the index lacks
something that a segment says. ``missing``: the index names bytes that are not there."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between index and objects."""

    kind: FindingKind
    subject: str
    """Segment key or trajectory id."""
    detail: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and every difference."""

    num_segments: int
    num_trajectories: int
    findings: list[Finding]
    repaired: bool = False
    """All findings but the corrupt ones are mended."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong any more."""
        return not self.findings or (self.repaired and all(one.kind != "corrupt" for one in self.findings))


def check_store(
    index: Index, objects: ObjectStore, *, repair: bool = False, progress: Progress | None = None
) -> CheckReport:
    """Read every segment and every index entry, and compare.

    With ``repair``, segments that are not indexed are; where the index names bytes that are not there, it is rebuilt.
    """
    segments = list_segments(index.keys, objects)
    findings: list[Finding] = []
    for num_done, key in enumerate(segments, start=1):
        findings += _check_segment(index, objects, key)
        if progress:
            progress(num_done, len(segments))
    num_trajectories, missing = _check_entries(index, frozenset(segments))
    findings += missing
    if repair and findings:
        _repair(index, objects, findings)
    return CheckReport(
        num_segments=len(segments),
        num_trajectories=num_trajectories,
        findings=findings,
        repaired=repair and bool(findings),
    )


def _check_segment(index: Index, objects: ObjectStore, key: str) -> list[Finding]:
    try:
        segment = read_segment(objects, key)
    except CorruptRecordError as error:
        return [Finding(kind="corrupt", subject=key, detail=str(error))]
    if not index.is_committed(key, segment.size_bytes):
        return [Finding(kind="unindexed", subject=key, detail="the segment is not marked as committed")]
    if lacking := index.lacking(key, segment.footer.chunks):
        return [Finding(kind="unindexed", subject=key, detail=f"the index lacks its part of {', '.join(lacking)}")]
    return []


def _check_entries(index: Index, segments: frozenset[str]) -> tuple[int, list[Finding]]:
    """Number of trajectories in the index, and what it names that is not there."""
    num_trajectories = 0
    findings = [
        Finding(kind="missing", subject=key, detail="the index has the segment marked as committed")
        for key in sorted(index.committed() - segments)
    ]
    for page in index.walk(Span(index.keys.by("all")), "ascending", None):
        num_trajectories += len(page)
        for position in page:
            named = {segment for segment, _ in index.chunks(position.trajectory_id)}
            if gone := sorted(named - segments):
                detail = f"parts of it should lie in {', '.join(gone)}"
                findings.append(Finding(kind="missing", subject=position.trajectory_id, detail=detail))
    return num_trajectories, findings


def _repair(index: Index, objects: ObjectStore, findings: list[Finding]) -> None:
    if any(one.kind == "missing" for one in findings):
        reindex(index.redis, index.keys, objects, drop=True)
        return
    for finding in findings:
        if finding.kind == "unindexed":
            index_segment(index.redis, index.keys, objects, finding.subject)
