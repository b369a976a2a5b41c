"""This file holds the comparison of index and objects, both ways, and how they are made one again."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.group import Group
from agent_layer.schema.policy import PolicyVersion
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted
from agent_layer.schema.step import Content, StepPart
from agent_layer.schema.trajectory import TrajectoryRecord
from agent_layer.store.figures import Figures, count_calls_seen
from agent_layer.store.index import Index, Span
from agent_layer.store.keys import Keys
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.rebuild import Progress, Segment, index_segment, list_segments, read_segment, reindex
from agent_layer.store.sealing import count_calls

__all__ = ["CheckReport", "Finding", "FindingKind", "check_store"]

FindingKind: TypeAlias = Literal["corrupt", "unindexed", "missing", "short"]
"""``corrupt``: bytes of a segment are not what they should be, only a copy of it helps. ``unindexed``: the index lacks
something that a segment says. ``missing``: the index names bytes that are not there. ``short``: an accepted attempt
lacks calls that its gateway counted; nothing brings them back."""
_BEYOND_REPAIR: frozenset[str] = frozenset({"corrupt", "short"})


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
    """All findings that can be mended are."""
    figures: Figures
    """What of each run's calls should alarm."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong any more."""
        return not self.findings or (self.repaired and all(one.kind not in _BEYOND_REPAIR for one in self.findings))


def check_store(
    index: Index, objects: ObjectStore, *, repair: bool = False, progress: Progress | None = None
) -> CheckReport:
    """Read every segment and every index entry, and compare.

    With ``repair``, segments that are not indexed are; where the index names bytes that are not there, it is rebuilt.
    """
    segments = list_segments(index.keys, objects)
    findings: list[Finding] = []
    figures: Figures = Counter()
    for num_done, key in enumerate(segments, start=1):
        findings += _check_segment(index, objects, key, figures)
        if progress:
            progress(num_done, len(segments))
    num_trajectories, gone = _check_entries(index, frozenset(segments))
    findings += _find_missing(gone, index.keys, objects)
    is_repaired = repair and bool(findings)
    if is_repaired:
        _repair(index, objects, findings)
    if is_repaired or not findings:  # of an index that lacks something, nothing can be said
        findings += _find_short(index)
    return CheckReport(
        num_segments=len(segments),
        num_trajectories=num_trajectories,
        findings=findings,
        repaired=is_repaired,
        figures=figures,
    )


def _check_segment(index: Index, objects: ObjectStore, key: str, figures: Figures) -> list[Finding]:
    try:
        segment = read_segment(objects, key)
    except CorruptRecordError as error:
        return [Finding(kind="corrupt", subject=key, detail=str(error))]
    figures.update(count_calls_seen(record for records in segment.records.values() for record in records))
    probes = list(_probes(index.keys, key, segment))
    pipeline = index.pipeline()
    for probe in probes:
        pipeline.execute_command(*probe.command)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    found = cast("list[object]", pipeline.execute())
    lacking = {probe.subject: None for probe, one in zip(probes, found, strict=True) if one != probe.answer}
    if not lacking:
        return []
    return [Finding(kind="unindexed", subject=key, detail=f"the index lacks something of {', '.join(lacking)}")]


class _Probe(NamedTuple):
    """A question to Redis, and the answer of an index that holds what a segment says."""

    subject: str
    command: tuple[str, ...]
    answer: object


def _probes(keys: Keys, key: str, segment: Segment) -> Iterator[_Probe]:
    yield _Probe("the segment itself", ("HGET", keys.segments, key), str(segment.size_bytes).encode())
    for chunk in segment.footer.chunks:
        records = segment.records[chunk.owner]
        if any(isinstance(record, TrajectoryRecord) for record in records):
            place = f"{chunk.offset} {chunk.size_bytes}".encode()
            yield _Probe(chunk.owner, ("HGET", keys.chunks(chunk.owner), key), place)
        for command in {_command_of(keys, record): None for record in records if not isinstance(record, Content)}:
            yield _Probe(chunk.owner, command, 1)


def _command_of(keys: Keys, record: LogRecord) -> tuple[str, ...]:  # noqa: PLR0911  # one for each kind  # noqa: PLR0911  # one for each kind
    """What asks whether the index knows of a record. Contents are not known to it."""
    match record:
        case Group():
            return "EXISTS", keys.group(record.group_id)
        case PolicyVersion():
            return "HEXISTS", keys.policies(record.run), str(record.number)
        case TrainedBatch():
            return "HEXISTS", keys.batches(record.run), record.batch_id
        case StepPart():
            return "HEXISTS", keys.calls(record.trajectory_id), record.call_id
        case Reward():
            return "HEXISTS", keys.rewards(record.trajectory_id), record.reward_id
        case Accepted():
            return "HEXISTS", keys.trajectory(record.trajectory_id), "accepted"
        case _:
            return "HEXISTS", keys.trajectory(record.trajectory_id), "started_at"


def _check_entries(index: Index, segments: frozenset[str]) -> tuple[int, dict[str, set[str]]]:
    """Number of trajectories in the index; and, by what names them, segments that are not there."""
    num_trajectories = 0
    marked = {key.decode() for key in cast("list[bytes]", index.redis.hkeys(index.keys.segments))}
    gone = {key: {key} for key in sorted(marked - segments)}
    for page in index.walk(Span(index.keys.by("all")), "ascending", None):
        num_trajectories += len(page)
        for _, trajectory_id in page:
            if lacking := {segment for segment, _ in index.chunks(trajectory_id)} - segments:
                gone[trajectory_id] = lacking
    return num_trajectories, gone


def _find_missing(gone: dict[str, set[str]], keys: Keys, objects: ObjectStore) -> Iterator[Finding]:
    """Look again, now that the index has been read: what was shipped since the first look is not missing."""
    present = frozenset(list_segments(keys, objects)) if gone else frozenset[str]()
    for subject, segments in gone.items():
        if lacking := sorted(segments - present):
            yield Finding(kind="missing", subject=subject, detail=f"the index names {', '.join(lacking)}")


def _find_short(index: Index) -> Iterator[Finding]:
    """Accepted attempts, each with its calls: as many as were counted at its end, each begun and ended."""
    for page in index.walk(Span(index.keys.by("accepted")), "ascending", None):
        pipeline = index.pipeline()
        for _, trajectory_id in page:
            pipeline.hget(index.keys.trajectory(trajectory_id), "calls_at_end")
        for (_, trajectory_id), counted in zip(page, cast("list[bytes | None]", pipeline.execute()), strict=True):
            stored = count_calls(index.redis, index.keys, trajectory_id)
            expected = stored.started if counted is None else int(counted)
            if not expected <= stored.ended == stored.started:
                detail = (
                    f"accepted with {expected} calls, but {stored.started} starts and {stored.ended} ends are stored"
                )
                yield Finding(kind="short", subject=trajectory_id, detail=detail)


def _repair(index: Index, objects: ObjectStore, findings: list[Finding]) -> None:
    if any(one.kind == "missing" for one in findings):
        reindex(index.redis, index.keys, objects, drop=True)
        return
    for finding in findings:
        if finding.kind == "unindexed":
            index_segment(index.redis, index.keys, objects, finding.subject)
