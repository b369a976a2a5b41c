"""Compaction: merges small segments and removes bytes of deleted records while readers read.

In this order: new object, read back, index; then the old segments leave the index, then their objects go. After a crash
in between, the next run finishes the work; until then some records are stored twice and read once. A name in
``merging`` or ``rewrite`` tells the next run where to look.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import msgspec

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectStore, batched
from agent_layer.schema import SegmentFooter
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.findings import Finding
from agent_layer.store.maintenance.lock import MaintenanceLock, check_index_complete, maintenance_lock
from agent_layer.store.maintenance.merge import BrokenSegmentError, MergeInput, Merger, merge_sources, open_segment
from agent_layer.store.maintenance.merge_plan import Limits, limit_packs, merged_name, needs_rewrite, plan_packs
from agent_layer.store.maintenance.rebuild import Progress, index_segment, read_segment
from agent_layer.store.maintenance.removal import find_successors, is_superseded, remove_segments
from agent_layer.store.segments.format import SealedSegment, is_segment_name, segment_key
from agent_layer.store.segments.tombstones import decode_names, deletion_times, named_owners, write_tombstones

_NUM_AT_ONCE = 16
_PART_BYTES = 8 << 20
"""Read back at once."""

log = logging.getLogger(__name__)


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a compaction, or of its dry run."""

    num_segments: int
    """Committed segments before."""
    num_removed: int = 0
    """Removed segments: merged, rewritten, or left behind by a run that was stopped."""
    num_made: int = 0
    bytes_removed: int = 0
    bytes_made: int = 0
    num_deferred: int = 0
    """Segments that a later run merges, because this one reached its limit or was stopped."""
    num_left: int = 0
    """Segments with deleted bytes that could not be, or need not yet be, rewritten."""
    findings: list[Finding] = []
    """Unreadable segments, which stay unchanged."""
    dry_run: bool = False


def compact(  # noqa: PLR0913  # what a run is limited by, and who hears of it
    index: Index,
    objects: ObjectStore,
    *,
    limits: Limits | None = None,
    only_dead: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> CompactionReport:
    """Merge small segments, and rewrite those with deleted bytes.

    Args:
        index: of the namespace.
        objects: store of its segments.
        limits: which segments, and how far; see ``Limits``.
        only_dead: rewrite every segment with deleted bytes now, and no other.
        dry_run: only report how much there is to do.
        progress: called with (segments done, segments to do).
        is_stopped: asked before each new segment; True ends the run, and a later one goes on.

    Raises:
        BadInputError: a rebuild of the index is running or was stopped.
        LeaseLostError: another process compacts or collects garbage.
        CorruptRecordError: the object store does not return what was stored; nothing was removed.
    """
    check_index_complete(index.redis, index.keys)
    limits = limits or Limits()
    with maintenance_lock(index.redis, index.keys, limits.wait_seconds, limits.turn_seconds) as lock:
        run = _Compaction(index, objects, limits, lock)
        return run.run(only_dead=only_dead, dry_run=dry_run, progress=progress, is_stopped=is_stopped)


class _Compaction:
    """One run."""

    def __init__(self, index: Index, objects: ObjectStore, limits: Limits, lock: MaintenanceLock) -> None:
        self._index, self._redis, self._keys = index, index.redis, index.keys
        self._objects = objects
        self._limits = limits
        self._lock = lock
        self._findings: dict[str, Finding] = {}
        self._removed: dict[str, int] = {}
        self._made: list[int] = []

    def run(
        self, *, only_dead: bool, dry_run: bool, progress: Progress | None, is_stopped: Callable[[], bool]
    ) -> CompactionReport:
        num_segments = self._redis.hlen(self._keys.segments)
        if not dry_run:
            self._finish_earlier_run()
        sizes = self._read_sizes()
        noted = self._noted().intersection(sizes)
        due = noted if only_dead else self._find_due(noted, sizes)
        planned = plan_packs(
            {name: sizes[name] for name in due} if only_dead else sizes, due, self._limits, time.time()
        )
        packs = limit_packs(planned, sizes, self._limits.max_bytes)
        num_done, num_all = 0, sum(map(len, packs))
        for pack in packs:
            if is_stopped():
                break
            if not dry_run:
                self._merge(pack, sizes, due)
            num_done += len(pack)
            if progress:
                progress(num_done, num_all)
        return CompactionReport(
            num_segments=num_segments,
            num_removed=num_all if dry_run else len(self._removed),
            num_made=len(packs) if dry_run else len(self._made),
            bytes_removed=sum(sizes[name] for pack in packs for name in pack)
            if dry_run
            else sum(self._removed.values()),
            bytes_made=sum(self._made),
            num_deferred=sum(map(len, planned)) - num_done,
            num_left=self._redis.scard(self._keys.rewrite),
            findings=list(self._findings.values()),
            dry_run=dry_run,
        )

    def _finish_earlier_run(self) -> None:
        for name in decode_names(self._redis.smembers(self._keys.merging)):
            self._adopt(name)
        noted, committed = self._noted(), self._read_sizes()
        successors = find_successors(self._keys, self._objects, committed, noted)
        for name in sorted(noted):
            self._lock.renew()
            if name in successors or name not in committed:
                self._settle(name, successors.get(name, []), is_committed=name in committed)

    def _adopt(self, name: str) -> None:
        """Commit a segment that is stored already, if it is complete."""
        try:
            read_segment(self._objects, segment_key(self._keys, name))
            index_segment(self._redis, self._keys, self._objects, name)
        except NotFoundError:
            log.info("segment was never stored name=%s", name)
        except CorruptRecordError as error:
            self._leave_alone(BrokenSegmentError(name, error))
        self._redis.srem(self._keys.merging, name)

    def _settle(self, name: str, others: Sequence[MergeInput], *, is_committed: bool) -> None:
        """Remove a superseded segment; commit an uncommitted one that may hold needed records."""
        try:
            source = open_segment(self._keys, self._objects, name, whole=True)
            is_free = is_superseded(self._redis, self._keys, source, others)
        except BrokenSegmentError as error:
            if isinstance(error.reason, NotFoundError) and error.name == name and (others or not is_committed):
                self._redis.hdel(self._keys.segments, name)  # it went, and a rebuild that had read it marked it again
                self._redis.srem(self._keys.rewrite, name)
            else:
                self._leave_alone(error)
            return
        if is_free:
            self._retire([source], [one.footer for one in others])
        elif not is_committed:
            self._adopt(name)

    def _read_sizes(self) -> dict[str, int]:
        """Return the sizes of readable committed segments, by name."""
        stored = cast("dict[bytes, bytes]", self._redis.hgetall(self._keys.segments))
        left_out = decode_names(self._redis.hkeys(self._keys.quarantine))
        sizes = {name.decode(): int(size) for name, size in stored.items()}
        return {
            name: size for name, size in sizes.items() if name not in left_out and is_segment_name(self._keys, name)
        }

    def _noted(self) -> set[str]:
        """Return the names of segments with deleted bytes, and of superseded ones. Damaged ones become findings."""
        damaged = cast("dict[bytes, bytes]", self._redis.hgetall(self._keys.quarantine))
        found = {
            name for name in decode_names(self._redis.smembers(self._keys.rewrite)) if is_segment_name(self._keys, name)
        }
        for name in found.intersection(decode_names(damaged)):
            detail = f"it may hold deleted bytes: {damaged[name.encode()].decode()}"
            self._findings[name] = Finding(kind="corrupt", subject=name, detail=detail)
        return found.difference(decode_names(damaged))

    def _find_due(self, noted: Collection[str], sizes: dict[str, int]) -> set[str]:
        due: set[str] = set()
        for page in batched(sorted(noted), _NUM_AT_ONCE):
            for source in self._open(page, sizes):
                deaths = deletion_times(self._redis, self._keys, named_owners(source.footer))
                of_owner = {chunk.owner: chunk.size_bytes for chunk in source.footer.chunks}
                if needs_rewrite(of_owner, deaths, self._limits, time.time()):
                    due.add(source.footer.name)
        return due

    def _merge(self, pack: Sequence[str], sizes: dict[str, int], due: Collection[str]) -> None:
        sources = self._open(pack, sizes)
        while len(sources) > 1 or any(one.footer.name in due for one in sources):
            try:
                self._replace(sources)
            except BrokenSegmentError as error:
                self._leave_alone(error)
                sources = [one for one in sources if one.footer.name != error.name]
            else:
                return

    def _open(self, names: Iterable[str], sizes: dict[str, int]) -> list[MergeInput]:
        """Open segments, small ones in memory; unreadable ones stay unchanged."""

        def read(name: str) -> MergeInput | BrokenSegmentError:
            try:
                return open_segment(
                    self._keys, self._objects, name, whole=sizes.get(name, 0) < self._limits.small_bytes
                )
            except BrokenSegmentError as error:
                return error

        with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
            opened = list(threads.map(read, sorted(names)))
        for error in opened:
            if isinstance(error, BrokenSegmentError):
                self._leave_alone(error)
        self._lock.renew()
        return [one for one in opened if isinstance(one, MergeInput)]

    def _replace(self, sources: Sequence[MergeInput]) -> None:
        owners = set[str]().union(*(named_owners(one.footer) for one in sources))
        deaths = deletion_times(self._redis, self._keys, owners)
        merger = merge_sources(sources, deaths, self._lock.renew)
        if merger.emptied:
            dead_at = write_tombstones(self._keys, self._objects, merger.emptied, "deleted")
            apply_tombstones(self._redis, self._keys, merger.emptied, dead_at)
        names = [one.footer.name for one in sources]
        if not all(self._redis.hmget(self._keys.segments, names)):
            return  # another process merged one of them meanwhile
        news = [] if merger.is_empty else [self._store(merger, sources)]
        self._retire(sources, news)

    def _store(self, merger: Merger, sources: Sequence[MergeInput]) -> SegmentFooter:
        names = [one.footer.name for one in sources]
        name = merged_name(names, merger.builder.digest())
        replaces = set(names).union(*(one.footer.replaces for one in sources))
        content, sealed = merger.builder.finish(name, replaces)
        self._redis.sadd(self._keys.merging, name)
        self._put(content, sealed)
        commit_segments(self._redis, self._keys, [sealed])
        self._redis.srem(self._keys.merging, name)
        self._made.append(len(content))
        log.info("segments merged name=%s num_segments=%d num_bytes=%d", name, len(names), len(content))
        return sealed.footer

    def _put(self, content: bytes, sealed: SealedSegment) -> None:
        key = segment_key(self._keys, sealed.footer.name)
        self._objects.put(key, content)
        self._lock.renew()
        for begin in range(0, len(content), _PART_BYTES):
            if self._objects.get(key, begin, _PART_BYTES) != content[begin : begin + _PART_BYTES]:
                self._objects.delete(key)
                raise CorruptRecordError(
                    f"segment {key}: expected to read what was just stored, found other bytes; the segments that it"
                    " was to replace are all there; check the object store"
                )

    def _retire(self, sources: Sequence[MergeInput], news: Sequence[SegmentFooter]) -> None:
        gone = remove_segments(self._redis, self._keys, self._objects, [one.footer for one in sources], news)
        sizes = {one.footer.name: one.size_bytes for one in sources}
        self._removed |= {name: sizes[name] for name in gone}

    def _leave_alone(self, error: BrokenSegmentError) -> None:
        """Record an unreadable segment as a finding; one that another process removed is none."""
        name, reason = error.name, error.reason
        if isinstance(reason, NotFoundError):
            if self._redis.hexists(self._keys.segments, name):
                self._findings[name] = Finding(kind="missing", subject=name, detail=str(reason))
            return
        self._redis.hset(self._keys.quarantine, name, str(reason))
        self._findings[name] = Finding(kind="corrupt", subject=name, detail=str(reason))
