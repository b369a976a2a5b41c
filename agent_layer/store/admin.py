"""Maintenance of a store: delete, expire, check, compact, collect garbage, rebuild and offload the index."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack, cast

from agent_layer.infra import ObjectStore
from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.audit import CheckReport, check_store
from agent_layer.store.maintenance.compaction import CompactionReport, compact
from agent_layer.store.maintenance.deletion import DeletionReport, delete_trajectories
from agent_layer.store.maintenance.gc import GcReport, Grace, collect_garbage
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import Progress, ReindexReport, offload_index, reindex
from agent_layer.store.maintenance.retention import ExpiryReport, ExpiryRules, expire_trajectories
from agent_layer.store.segments.blob_refs import remove_unneeded


class StoreAdmin:
    """What operators do to a store; ``Store.admin`` is one. Changes what is stored, never what it says."""

    def __init__(self, index: Index, objects: ObjectStore) -> None:
        self._index = index
        self._redis, self._keys = index.redis, index.keys
        self._objects = objects

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        """Compare index and objects in both directions; see ``check_store``."""
        return check_store(self._index, self._objects, repair=repair, progress=progress)

    def compact(
        self,
        *,
        limits: Limits | None = None,
        only_dead: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> CompactionReport:
        """Remove unreferenced blobs, merge small segments, rewrite those with deleted bytes; see ``compaction``."""
        if not dry_run:
            remove_unneeded(self._redis, self._keys, self._objects)
        return compact(
            self._index,
            self._objects,
            limits=limits,
            only_dead=only_dead,
            dry_run=dry_run,
            progress=progress,
            is_stopped=is_stopped,
        )

    def collect_garbage(
        self, *, grace: Grace | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> GcReport:
        """Remove objects that nothing refers to; see ``gc.collect_garbage``."""
        return collect_garbage(self._index, self._objects, grace=grace, dry_run=dry_run, progress=progress)

    def delete(
        self,
        trajectory_id: str | None = None,
        *,
        dry_run: bool = False,
        purge: bool = True,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> DeletionReport:
        """Delete one trajectory, or all that pass the filters; see ``Store.delete``."""
        purge_bytes = partial(self.compact, only_dead=True, progress=progress) if purge else None
        return delete_trajectories(
            self._index, self._objects, trajectory_id, filters, dry_run=dry_run, purge=purge_bytes
        )

    def expire(
        self,
        *,
        dry_run: bool = False,
        purge: bool = True,
        progress: Progress | None = None,
        **rules: Unpack[ExpiryRules],
    ) -> ExpiryReport:
        """Delete the trajectories for which every rule holds, except running ones and those a consumer has yet to read.

        Args:
            dry_run: change nothing, only report what would go.
            purge: as for ``delete``.
            progress: of the rewriting.
            rules: filters and the fields of ``ExpiryRules``: older_than, policy_below, duplicates, stale_env, unread.

        Raises: BadInputError, LeaseLostError: as ``delete`` does.
        """
        purge_bytes = partial(self.compact, only_dead=True, progress=progress) if purge else None
        return expire_trajectories(self._index, self._objects, rules, dry_run=dry_run, purge=purge_bytes)

    def reindex(
        self, *, drop: bool = False, only: Sequence[str] | None = None, progress: Progress | None = None
    ) -> ReindexReport:
        """Rebuild the index from the objects alone; see ``rebuild.reindex``."""
        return reindex(self._redis, self._keys, self._objects, drop=drop, only=only, progress=progress)

    def find_cooled(self) -> set[str]:
        """Return the runs whose index ``offload`` removed, in whole or in part, and no rebuild restored."""
        return {name.decode() for name in cast("set[bytes]", self._redis.smembers(self._keys.cooled))}

    def offload(self) -> int:
        """Remove the index from Redis and keep the objects; ``reindex`` restores it. See ``offload_index``."""
        return offload_index(self._index)

    def quarantine(self) -> dict[str, str]:
        """Return the segments with unreadable bytes, by name, with the reason; their readable parts are served."""
        found = cast("dict[bytes, bytes]", self._redis.hgetall(self._keys.quarantine))
        return {name.decode(): reason.decode() for name, reason in sorted(found.items())}
