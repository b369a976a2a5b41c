"""This file holds what is done to a store from time to time: deleting, expiring, rebuilding, checking, compacting."""

from functools import partial
from typing import Unpack, cast

from redis import Redis

from agent_layer.infra.objects import ObjectStore
from agent_layer.infra.redis import Keys
from agent_layer.store.index import Filters, Index
from agent_layer.store.maintenance import (
    CheckReport,
    CompactionReport,
    DeletionReport,
    ExpiryReport,
    ExpiryRules,
    GcReport,
    Grace,
    Limits,
    Progress,
    ReindexReport,
    check_store,
    collect_garbage,
    compact,
    delete_trajectories,
    expire_trajectories,
    offload_index,
    reindex,
)
from agent_layer.store.segments import remove_unneeded


class StoreCare:
    """The part of a store that takes care of it; ``Store`` is the whole."""

    def __init__(self, redis: Redis, keys: Keys, objects: ObjectStore) -> None:
        self.redis = redis
        self.keys = keys
        self.objects = objects
        self._index = Index(redis, keys)

    def delete(
        self,
        trajectory_id: str | None = None,
        *,
        dry_run: bool = False,
        purge: bool = True,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> DeletionReport:
        """Delete one trajectory, or all that pass the filters (``task="t1"``, ``labels={"user": "u7"}``), for ever.

        When this returns, no search finds them, no rebuild and no replayed log brings them back, and no object holds a
        byte of them. A group of which something lives goes on without them. The head of ``deletion.py`` speaks of
        attempts that still run and of logs on other machines.

        Args:
            trajectory_id: the one that is meant; leave it out to say filters.
            dry_run: change nothing, only say what would go.
            purge: rewrite the segments that hold bytes of them; otherwise the next compaction does.
            progress: of the rewriting.
            filters: what ``query`` takes.

        Raises:
            BadInputError: no condition is given, or one that cannot be asked for; or the index is being rebuilt.
            NotFoundError: there never was a trajectory of this id.
            LeaseLostError: another process compacts; all is deleted but for the bytes, delete again.
        """
        purged = partial(self.compact, only_dead=True, progress=progress) if purge else None
        return delete_trajectories(self._index, self.objects, trajectory_id, filters, dry_run=dry_run, purge=purged)

    def expire(
        self,
        *,
        dry_run: bool = False,
        purge: bool = True,
        progress: Progress | None = None,
        **rules: Unpack[ExpiryRules],
    ) -> ExpiryReport:
        """Delete what was kept for long enough: all trajectories for which every rule holds, save those that run or
        that a consumer has yet to read.

        Args:
            dry_run: change nothing, only say what would go.
            purge: as for ``delete``.
            progress: of the rewriting.
            rules: filters, and what ``ExpiryRules`` names: older_than, policy_below, duplicates, stale_env, unread.

        Raises: BadInputError, LeaseLostError: as ``delete`` does.
        """
        purged = partial(self.compact, only_dead=True, progress=progress) if purge else None
        return expire_trajectories(self._index, self.objects, rules, dry_run=dry_run, purge=purged)

    def reindex(self, *, drop: bool = False, progress: Progress | None = None) -> ReindexReport:
        """Rebuild the index from the objects alone; see ``rebuild.reindex``."""
        return reindex(self.redis, self.keys, self.objects, drop=drop, progress=progress)

    def cool(self) -> int:
        """Take the index out of Redis and leave the objects; ``reindex`` brings it back. See ``offload_index``."""
        return offload_index(self._index)

    def quarantine(self) -> dict[str, str]:
        """Segments of which some bytes cannot be read, by name, and why; what is whole of them is served."""
        found = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.quarantine))
        return {name.decode(): reason.decode() for name, reason in sorted(found.items())}

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        """Compare index and objects both ways; see ``check.check_store``."""
        return check_store(self._index, self.objects, repair=repair, progress=progress)

    def compact(
        self,
        *,
        limits: Limits | None = None,
        only_dead: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionReport:
        """Merge small segments, and rewrite those with bytes of something deleted; see ``compaction.compact``.

        Blobs that nobody needs any more go first.
        """
        if not dry_run:
            remove_unneeded(self.redis, self.keys, self.objects)
        return compact(
            self._index, self.objects, limits=limits, only_dead=only_dead, dry_run=dry_run, progress=progress
        )

    def collect_garbage(
        self, *, grace: Grace | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> GcReport:
        """Remove objects that nobody needs; see ``garbage.collect_garbage``."""
        return collect_garbage(self._index, self.objects, grace=grace, dry_run=dry_run, progress=progress)
