"""Integrity audit: compares index and objects in both directions, and repairs the index.

It also compares decisions with each other, and reads every blob that a stored trajectory needs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, cast

import msgspec

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectStore, batched
from agent_layer.state import count_calls
from agent_layer.store.index.index import Index
from agent_layer.store.index.search import scan_trajectories
from agent_layer.store.maintenance.call_stats import CallStats, count_call_stats
from agent_layer.store.maintenance.decisions import find_conflicts, find_group
from agent_layer.store.maintenance.findings import Finding, FindingKind
from agent_layer.store.maintenance.index_audit import count_orphan_bits, find_inconsistent_rows, find_missing_entries
from agent_layer.store.maintenance.merge import BrokenSegmentError, open_segment
from agent_layer.store.maintenance.rebuild import Progress, index_segment, read_segment, reindex
from agent_layer.store.maintenance.removal import find_successors, is_superseded
from agent_layer.store.segments.blobs import read_blob
from agent_layer.store.segments.format import is_segment_name, list_segments, segment_key, segment_name
from agent_layer.store.segments.tombstones import decode_names, list_tombstones

_BEYOND_REPAIR: frozenset[FindingKind] = frozenset(
    {"corrupt", "short", "lost", "doubled", "regrouped", "unaccepted", "ungrouped"}
)
_HARMLESS: frozenset[FindingKind] = frozenset({"misnamed"})
_PAGE = 256
_NUM_AT_ONCE = 16
_REBUILT: frozenset[FindingKind] = frozenset({"missing", "misfiled", "undead"})
"""Repaired by a rebuild of the whole index."""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an audit."""

    num_segments: int
    num_trajectories: int
    findings: list[Finding]
    repaired: bool = False
    """Every repairable finding is repaired."""
    call_stats: CallStats
    """Counts of suspicious calls per run."""

    @property
    def is_sound(self) -> bool:
        """Whether no finding remains that does harm."""
        left = {one.kind for one in self.findings} - _HARMLESS
        return not left or (self.repaired and left.isdisjoint(_BEYOND_REPAIR))


def find_broken_blobs(index: Index, objects: ObjectStore) -> Iterator[Finding]:
    """Read every blob that a committed segment refers to; yield those that are not readable."""

    def find_fault(name: str) -> tuple[str, CorruptRecordError | NotFoundError | None]:
        try:
            read_blob(index.keys, objects, name)
        except (CorruptRecordError, NotFoundError) as error:
            return name, error
        return name, None

    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for page in batched((row.trajectory_id for row in scan_trajectories(index, {})), _PAGE):
            users = _find_users(index, page)
            for name, fault in threads.map(find_fault, users):
                if fault and index.redis.hexists(
                    index.keys.trajectory_blobs(users[name]), name
                ):  # not deleted meanwhile
                    kind = "lost" if isinstance(fault, NotFoundError) else "corrupt"
                    yield Finding(kind=kind, subject=users[name], detail=str(fault))


def _find_users(index: Index, trajectory_ids: list[str]) -> dict[str, str]:
    """Return one trajectory that needs each blob, by blob."""
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hgetall(index.keys.trajectory_blobs(trajectory_id))
    found = cast("list[dict[bytes, bytes]]", pipeline.execute())
    return {
        name.decode(): trajectory_id
        for trajectory_id, blobs in zip(trajectory_ids, found, strict=True)
        for name, is_stored in blobs.items()
        if is_stored == b"1"
    }


def check_store(
    index: Index, objects: ObjectStore, *, repair: bool = False, progress: Progress | None = None
) -> CheckReport:
    """Read every segment and every index entry, and compare.

    With ``repair``, unindexed segments are indexed. If the index names missing bytes, contradicts itself or lacks a
    deletion, it is rebuilt.
    """
    segments = list_segments(index.keys, objects)
    findings = list(_find_undead(index, objects))
    call_stats: CallStats = Counter()
    suspects = _Suspects(set(), set())
    for num_done, key in enumerate(segments, start=1):
        findings += _check_segment(index, objects, key, call_stats, suspects)
        if progress:
            progress(num_done, len(segments))
    num_trajectories, gone = _check_entries(index, frozenset(map(segment_name, segments)))
    findings = [one for one in findings if one.kind != "unindexed" or _is_unindexed(index, objects, one.subject)]
    findings += _find_missing(gone, index, objects)
    findings += _find_misfiled(index, suspects.trajectory_ids)
    is_repaired = repair and bool(findings)
    if is_repaired:
        _repair(index, objects, findings)
    is_whole = is_repaired or not findings
    findings += _find_conflicts(index, objects, segments if is_repaired else suspects.segments, is_whole=is_whole)
    if is_whole:  # an incomplete index would report false shortages
        findings += _find_short(index)
    findings += find_broken_blobs(index, objects)
    return CheckReport(
        num_segments=len(segments),
        num_trajectories=num_trajectories,
        findings=findings,
        repaired=is_repaired,
        call_stats=call_stats,
    )


class _Suspects(NamedTuple):
    """What seems wrong, and is looked at again once everything is read."""

    trajectory_ids: set[str]
    """Those that seem misfiled."""
    segments: set[str]
    """Keys of those whose decisions seem to contradict others."""


def _check_segment(
    index: Index, objects: ObjectStore, key: str, call_stats: CallStats, suspects: _Suspects
) -> list[Finding]:
    """Compare the index with one segment; add what seems misfiled or contradictory to the suspects."""
    name = segment_name(key) or key
    try:
        segment = read_segment(objects, key)
    except NotFoundError:  # merged into another one since it was listed
        return []
    except CorruptRecordError as error:
        index.redis.hset(index.keys.quarantine, name, str(error))
        return [Finding(kind="corrupt", subject=name, detail=str(error))]
    index.redis.hdel(index.keys.quarantine, name)
    call_stats.update(count_call_stats(record for records in segment.records.values() for record in records))
    lacking = find_missing_entries(index, segment)
    whole = (one.trajectory_id for one in segment.footer.trajectories if one.trajectory_id not in lacking)
    suspects.trajectory_ids.update(find_inconsistent_rows(index, whole))
    if any(find_conflicts(index, segment)):
        suspects.segments.add(key)
    if lacking and not _is_merged(index, objects, name):
        return [Finding(kind="unindexed", subject=name, detail=f"the index lacks something of {', '.join(lacking)}")]
    return []


def _is_merged(index: Index, objects: ObjectStore, name: str) -> bool:
    """Whether the index needs no part of a segment: others hold its live records, or it is gone already."""
    if not is_segment_name(index.keys, name):
        return False
    committed = decode_names(index.redis.hkeys(index.keys.segments))
    try:
        segment = open_segment(index.keys, objects, name, whole=True)
        others = find_successors(index.keys, objects, committed, [name]).get(name, [])
        return is_superseded(index.redis, index.keys, segment, others)
    except BrokenSegmentError as error:
        return error.name == name and isinstance(error.reason, NotFoundError)


def _is_unindexed(index: Index, objects: ObjectStore, name: str) -> bool:
    """Check again, in case the segment was on its way into the index."""
    key = segment_key(index.keys, name)
    return any(
        one.kind == "unindexed" for one in _check_segment(index, objects, key, Counter(), _Suspects(set(), set()))
    )


def _check_entries(index: Index, segments: frozenset[str | None]) -> tuple[int, dict[str, set[str]]]:
    """Return the number of trajectories in the index, and the missing segments by what names them."""
    num_trajectories = 0
    marked = decode_names(index.redis.hkeys(index.keys.segments))
    gone = {name: {name} for name in sorted(marked - segments)}
    for page in batched((row.trajectory_id for row in scan_trajectories(index, {})), _PAGE):
        num_trajectories += len(page)
        for trajectory_id in page:
            if lacking := {segment for segment, _ in index.chunks(trajectory_id)} - segments:
                gone[trajectory_id] = lacking
    return num_trajectories, gone


def _find_misfiled(index: Index, suspects: set[str]) -> Iterator[Finding]:
    """Check suspects again, in case they were just changing; also report bits that belong to no trajectory."""
    for trajectory_id in find_inconsistent_rows(index, sorted(suspects)):
        detail = "its block differs from its row, or its reward from its judgements"
        yield Finding(kind="misfiled", subject=trajectory_id, detail=detail)
    for block, num_orphans in count_orphan_bits(index.redis, index.keys).items():
        yield Finding(kind="misfiled", subject=f"block {block}", detail=f"{num_orphans} bits belong to no trajectory")


def _find_undead(index: Index, objects: ObjectStore) -> Iterator[Finding]:
    known = {name.decode() for name in cast("list[bytes]", index.redis.hkeys(index.keys.dead))}
    for stone in list_tombstones(index.keys, objects):
        if stone.owner_hash not in known:
            yield Finding(kind="undead", subject=stone.owner_hash, detail="its tombstone is not in the index")


def _find_missing(gone: dict[str, set[str]], index: Index, objects: ObjectStore) -> Iterator[Finding]:
    """Check again after the index was read: what was shipped or merged meanwhile is not missing."""
    present = frozenset(map(segment_name, list_segments(index.keys, objects))) if gone else frozenset[str | None]()
    for subject, segments in gone.items():
        if subject in segments and not index.redis.hexists(index.keys.segments, subject):
            continue
        named = {segment for segment, _ in index.chunks(subject)} or segments
        if lacking := sorted((segments & named) - present):
            yield Finding(kind="missing", subject=subject, detail=f"the index names {', '.join(lacking)}")


def _find_conflicts(index: Index, objects: ObjectStore, keys: Iterable[str], *, is_whole: bool) -> list[Finding]:
    """Contradictions among decisions, each once; an index that is not whole may lack what was accepted."""
    found: dict[tuple[FindingKind, str], Finding] = {}
    for key in sorted(keys):
        with suppress(NotFoundError, CorruptRecordError):  # merged meanwhile, or a finding already
            for one in find_conflicts(index, read_segment(objects, key)):
                if is_whole or one.kind != "unaccepted":
                    found.setdefault((one.kind, one.subject), one)
    contradicted = {subject for kind, subject in found if kind in ("regrouped", "unaccepted")}
    return [one for one in found.values() if one.kind != "ungrouped" or find_group(one.subject) not in contradicted]


def _find_short(index: Index) -> Iterator[Finding]:
    """Yield accepted attempts whose stored calls are fewer than counted at their end, or not all ended."""
    accepted = (row.trajectory_id for row in scan_trajectories(index, {"accepted": True}))
    for page in batched(accepted, _PAGE):
        pipeline = index.pipeline()
        for trajectory_id in page:
            pipeline.hget(index.keys.trajectory(trajectory_id), "calls_at_end")
        for trajectory_id, counted in zip(page, cast("list[bytes | None]", pipeline.execute()), strict=True):
            stored = count_calls(index.redis, index.keys, trajectory_id)
            expected = stored.started if counted is None else int(counted)
            if not expected <= stored.ended == stored.started:
                detail = (
                    f"accepted with {expected} calls, but {stored.started} starts and {stored.ended} ends are stored"
                )
                yield Finding(kind="short", subject=trajectory_id, detail=detail)


def _repair(index: Index, objects: ObjectStore, findings: list[Finding]) -> None:
    if any(one.kind in _REBUILT for one in findings):
        index.redis.hset(index.keys.reindexing, "drop", 1)
        index.redis.hdel(index.keys.reindexing, "done_to")  # what an earlier rebuild indexed may be at fault
        reindex(index.redis, index.keys, objects, drop=True)
        return
    for finding in findings:
        if finding.kind == "unindexed":
            with suppress(NotFoundError):  # merged into another one since it was read
                index_segment(index.redis, index.keys, objects, finding.subject)
    index.redis.delete(index.keys.cooled)
