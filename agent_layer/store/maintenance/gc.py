"""Garbage collection: removes unreferenced objects, and keeps whatever may be the only copy of a record.

A segment without an index entry may be the truth that no index knows yet: it goes only if other, committed segments
hold every live record of it, byte for byte. Objects younger than the grace period stay.
"""

import time
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectEntry, ObjectStore, batched
from agent_layer.recorder import read_frames
from agent_layer.schema import Tombstone, decode
from agent_layer.state import checkpoint_prefix, checkpoint_trajectory, parse_checkpoint_key
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.findings import Finding
from agent_layer.store.maintenance.lock import MaintenanceLock, check_index_complete, maintenance_lock
from agent_layer.store.maintenance.merge import BrokenSegmentError, MergeInput, open_segment
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import Progress
from agent_layer.store.maintenance.removal import find_successors, is_superseded, remove_segments
from agent_layer.store.segments.blob_refs import find_orphans, remove_unneeded
from agent_layer.store.segments.blobs import parse_blob_key
from agent_layer.store.segments.format import is_segment_name, read_footer, segment_key, segment_name
from agent_layer.store.segments.tombstones import decode_names, named_owners, owner_hash

_PAGE: Final = 256


class Grace(msgspec.Struct, frozen=True, kw_only=True):
    """Age that objects must have before they may go."""

    seconds: float = 3_600.0
    """Since an object was stored; far longer than any process takes from storing one to indexing it."""
    tombstone_seconds: float = 30 * 86_400.0
    """Since a deletion; far longer than any log waits to be shipped, which could restore deleted records."""
    checkpoint_seconds: float = 7 * 86_400.0
    """Since a checkpoint was stored; far longer than any gateway keeps an attempt without a worker."""


class RemovedObject(msgspec.Struct, frozen=True, kw_only=True):
    """A removed object, or one that a dry run would remove."""

    key: str
    size_bytes: int
    reason: str


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a collection, or of its dry run: removed objects, and odd ones that stay."""

    num_objects: int
    """Objects examined."""
    removed: list[RemovedObject]
    findings: list[Finding]
    dry_run: bool = False

    @property
    def bytes_removed(self) -> int:
        """Size of all removed objects."""
        return sum(one.size_bytes for one in self.removed)


def collect_garbage(
    index: Index,
    objects: ObjectStore,
    *,
    grace: Grace | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> GcReport:
    """Remove superseded segments, unfinished objects, and tombstones whose owners have no stored record left.

    Raises:
        BadInputError: a rebuild of the index is running or was stopped.
        LeaseLostError: another process compacts or collects garbage.
    """
    check_index_complete(index.redis, index.keys)
    limits = Limits()
    with maintenance_lock(index.redis, index.keys, limits.wait_seconds, limits.turn_seconds) as lock:
        collection = _Collection(index, objects, grace or Grace(), lock, dry_run=dry_run)
        return collection.run(progress or (lambda _done, _all: None))


class _Collection:
    """One run."""

    def __init__(
        self, index: Index, objects: ObjectStore, grace: Grace, lock: MaintenanceLock, *, dry_run: bool
    ) -> None:
        self._index, self._redis, self._keys = index, index.redis, index.keys
        self._objects = objects
        self._grace = grace
        self._lock = lock
        self._dry_run = dry_run
        self._now = time.time()
        self._removed: list[RemovedObject] = []
        self._findings: list[Finding] = []

    def run(self, progress: Progress) -> GcReport:
        root = f"{self._keys.namespace}/"
        segments = list(self._objects.list_entries(f"{root}seg/"))
        tombstones = list(self._objects.list_entries(f"{root}dead/"))
        blobs = list(self._objects.list_entries(f"{root}blob/"))
        checkpoints = list(self._objects.list_entries(checkpoint_prefix(self._keys)))
        unfinished = list(self._objects.list_unfinished(root))
        for entry in self._aged(unfinished, self._grace.seconds):
            self._remove(entry, "its writer died before it was whole")
        self._collect_segments(segments, progress)
        self._collect_blobs(blobs)
        self._collect_checkpoints(checkpoints)
        self._collect_tombstones(list(self._aged(tombstones, self._grace.tombstone_seconds)), segments)
        return GcReport(
            num_objects=sum(map(len, (segments, tombstones, blobs, checkpoints, unfinished))),
            removed=self._removed,
            findings=self._findings,
            dry_run=self._dry_run,
        )

    def _aged(self, entries: list[ObjectEntry], seconds: float) -> Iterator[ObjectEntry]:
        return (one for one in entries if self._now - one.modified_at >= seconds)

    def _remove(self, entry: ObjectEntry, reason: str) -> None:
        if not self._dry_run:
            self._objects.delete(entry.key)
        self._removed.append(RemovedObject(key=entry.key, size_bytes=entry.size_bytes, reason=reason))

    def _collect_segments(self, entries: list[ObjectEntry], progress: Progress) -> None:
        aged = {name: one for one in self._aged(entries, self._grace.seconds) if (name := self._parse_name(one))}
        committed = decode_names(self._redis.hkeys(self._keys.segments))
        left_alone = decode_names(self._redis.hkeys(self._keys.quarantine))
        successors = find_successors(self._keys, self._objects, committed, aged)
        for num_done, (name, entry) in enumerate(sorted(aged.items()), start=1):
            self._lock.renew()
            if name not in left_alone and (name in successors or name not in committed):
                self._look_at(name, entry, successors.get(name, []), is_committed=name in committed)
            progress(num_done, len(aged))

    def _parse_name(self, entry: ObjectEntry) -> str | None:
        """Return the name of the segment at this key; None if no index would look for it here."""
        name = segment_name(entry.key)
        return (
            name if name and is_segment_name(self._keys, name) and segment_key(self._keys, name) == entry.key else None
        )

    def _look_at(self, name: str, entry: ObjectEntry, others: list[MergeInput], *, is_committed: bool) -> None:
        try:
            source = open_segment(self._keys, self._objects, name, whole=True)
            others = others or self._replaced_by(source)
            is_free = is_superseded(self._redis, self._keys, source, others)
        except BrokenSegmentError as error:
            if not isinstance(error.reason, NotFoundError):
                self._findings.append(Finding(kind="corrupt", subject=error.name, detail=str(error.reason)))
            return
        if is_free:
            news = [one.footer for one in others]
            if self._dry_run or remove_segments(self._redis, self._keys, self._objects, [source.footer], news):
                reason = f"all of it is in {', '.join(one.name for one in news) or 'no living trajectory'}"
                self._removed.append(RemovedObject(key=entry.key, size_bytes=entry.size_bytes, reason=reason))
        elif not is_committed:
            detail = "no index names it, and nothing replaces it; run 'agent-layer store reindex'"
            self._findings.append(Finding(kind="unindexed", subject=name, detail=detail))

    def _replaced_by(self, source: MergeInput) -> list[MergeInput]:
        """Return the committed segments that an uncommitted one was to replace, and those that did so instead."""
        names = source.footer.replaces
        committed = decode_names(self._redis.hkeys(self._keys.segments))
        found = find_successors(self._keys, self._objects, committed, names)
        sources = {one.footer.name: one for ours in found.values() for one in ours}
        for name in committed.intersection(names):
            sources[name] = open_segment(self._keys, self._objects, name, whole=False)
        sources.pop(source.footer.name, None)
        return list(sources.values())

    def _collect_blobs(self, entries: list[ObjectEntry]) -> None:
        by_name = {name: one for one in entries if (name := parse_blob_key(one.key))}
        aged = [name for one in self._aged(entries, self._grace.seconds) if (name := parse_blob_key(one.key))]
        gone = find_orphans(self._redis, self._keys, self._objects, aged)
        if not self._dry_run:
            gone = remove_unneeded(self._redis, self._keys, self._objects, gone)
        for entry in (by_name[name] for name in gone if name in by_name):
            self._removed.append(
                RemovedObject(key=entry.key, size_bytes=entry.size_bytes, reason="no stored trajectory needs it")
            )

    def _collect_checkpoints(self, entries: list[ObjectEntry]) -> None:
        """Remove checkpoints of workers that died; live workers remove their own."""
        old = set(self._aged(entries, self._grace.checkpoint_seconds))
        aged = [
            (one, name) for one in self._aged(entries, self._grace.seconds) if (name := parse_checkpoint_key(one.key))
        ]
        for page in batched(aged, _PAGE):
            pipeline = self._index.pipeline()
            for _, name in page:
                pipeline.hexists(self._keys.trajectory(checkpoint_trajectory(name)), "ended_at")
            for (entry, _), has_ended in zip(page, cast("list[bool]", pipeline.execute()), strict=True):
                if has_ended or entry in old:
                    self._remove(entry, "its attempt has ended" if has_ended else "its attempt was not resumed")

    def _collect_tombstones(self, aged: list[ObjectEntry], segments: list[ObjectEntry]) -> None:
        stones = {entry: found for entry in aged if (found := self._read_stones(entry))}
        if not stones or (named := self._hashes_in(segments)) is None:
            return
        for entry, hashes in stones.items():
            if not named.intersection(hashes):
                self._remove(entry, "no stored record belongs to its owners")
                if not self._dry_run:
                    self._redis.hdel(self._keys.dead, *hashes)

    def _read_stones(self, entry: ObjectEntry) -> list[str]:
        contents, _ = read_frames(self._objects.get(entry.key))
        return [stone.owner_hash for one in contents if isinstance(stone := decode(one), Tombstone)]

    def _hashes_in(self, segments: list[ObjectEntry]) -> set[str] | None:
        """Return the hashes of all owners in any segment; None if a segment is unreadable."""
        found: set[str] = set()
        for entry in segments:
            self._lock.renew()
            try:
                footer = read_footer(self._objects, entry.key).footer
            except NotFoundError:  # went since it was listed
                continue
            except CorruptRecordError:
                return None
            found.update(owner_hash(owner) for owner in named_owners(footer))
        return found
