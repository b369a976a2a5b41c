"""This file holds the store as its readers see it: one object that answers questions about trajectories."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Unpack, cast

from redis import Redis

from agent_layer.recorder.log import open_recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward, RewardSource
from agent_layer.schema.step import Step
from agent_layer.schema.task import Split
from agent_layer.schema.trajectory import Trajectory
from agent_layer.settings import Settings, load_settings
from agent_layer.store.check import check_store
from agent_layer.store.clients import open_redis
from agent_layer.store.compaction import CompactionReport, compact
from agent_layer.store.deletion import DeletionReport, delete_trajectories
from agent_layer.store.explain import Explanation, explain_search
from agent_layer.store.filters import Filters
from agent_layer.store.findings import CheckReport
from agent_layer.store.follow import Consumer, Follower, GroupDelivery
from agent_layer.store.garbage import GcReport, Grace, collect_garbage
from agent_layer.store.index import Index
from agent_layer.store.keys import Keys
from agent_layer.store.objects import open_objects
from agent_layer.store.packing import Limits
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.query import Order, Page, find_trajectories, scan_trajectories
from agent_layer.store.reading import not_found, pick_step, read_trajectories
from agent_layer.store.rebuild import Progress, ReindexReport, reindex
from agent_layer.store.retention import ExpiryReport, ExpiryRules, expire_trajectories
from agent_layer.store.rows import TrajectoryRow
from agent_layer.store.summaries import By, Summary, count_trajectories, summarise_trajectories

__all__ = ["Store", "open_store"]


class Store:
    """Reads trajectories: the index says which and where, the objects give their bytes."""

    def __init__(self, settings: Settings, redis: Redis, objects: ObjectStore) -> None:
        self.redis = redis
        self.keys = Keys(settings.namespace)
        self.objects = objects
        self._settings = settings
        self._index = Index(redis, self.keys)
        self._followers: dict[Consumer, Follower] = {}

    def query(
        self, *, order: Order = "newest", limit: int = 32, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> Page:
        """Find trajectories by what ``Filters`` names: run, split, task, task_type, input_hash, env, env_version,
        status, cause, agent, tool, labels, accepted, step, policy, reward, since, until.

        Raises: BadInputError: a filter, the order, the limit or the cursor is not one that can be asked for.
        """
        return find_trajectories(self._index, filters, order, limit, cursor)

    def scan(self, **filters: Unpack[Filters]) -> Iterator[TrajectoryRow]:
        """Give all trajectories that pass the filters, oldest first, a page at a time; raises what ``query`` does."""
        return scan_trajectories(self._index, filters)

    def count(self, **filters: Unpack[Filters]) -> int:
        """Count the trajectories that pass the filters; raises what ``query`` does."""
        return count_trajectories(self._index, filters)

    def summarise(self, by: Sequence[By] = (), *, success: float = 1.0, **filters: Unpack[Filters]) -> list[Summary]:
        """Count trajectories and average their rewards by what they have in common, such as task type and policy.

        Args:
            by: among run, split, task_type, env, env_version, status, cause, agent, tool, policy.
            success: least reward of a success.
            filters: what ``query`` takes.

        Raises: BadInputError: a field or filter is not one that can be asked for, or there would be too many lines.
        """
        return summarise_trajectories(self._index, by, filters, success)

    def explain(self, *, order: Order = "newest", limit: int = 32, **filters: Unpack[Filters]) -> Explanation:
        """Tell how ``query`` finds its answer: which condition leads, how much of the index it looks at, how long."""
        return explain_search(self._index, filters, order, limit)

    def row(self, trajectory_id: str) -> TrajectoryRow:
        """What the index knows of one trajectory.

        Raises: NotFoundError: nothing.
        """
        for row in self._index.rows([trajectory_id]):
            return row
        raise not_found(trajectory_id, self.keys.namespace)

    def get(self, trajectory_id: str) -> Trajectory:
        """Read a trajectory whole: steps, observations, rewards, contents.

        Raises:
            NotFoundError: there is none of this id.
            CorruptRecordError: stored bytes are not what their checksum says.
        """
        return read_trajectories(self._index, self.objects, [trajectory_id])[0]

    def step(self, trajectory_id: str, step: int) -> Step:
        """Read one step, its whole prompt filled in; raises what ``get`` does, or NotFoundError for the step."""
        return pick_step(self.get(trajectory_id), step)

    def follow(
        self,
        consumer: str,
        run: str,
        split: Split | None = "train",
        *,
        wait_seconds: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[GroupDelivery]:
        """Give whole groups in order of closing, those first that this consumer did not acknowledge before.

        Args:
            consumer: the name under which acknowledgements are remembered.
            run: whose groups.
            split: ``None`` gives both.
            wait_seconds: end when no group came for so long; None waits for ever, 0 gives what is there.
            stop: asked before each group and twice a second; ends the iteration when true.
        """
        if self.redis.xlen(self.keys.outbox):  # whoever decided may have died, and all shippers with it
            ensure_shipper(self._settings)
        follower = Follower(self._index, self.objects, Consumer(consumer, run, split))
        return follower.follow(wait_seconds, stop)

    def read_groups(
        self, consumer: str, run: str, limit: int | None = None, split: Split | None = "train"
    ) -> list[GroupDelivery]:
        """Give groups that are ready now and that this store object did not give to the consumer before."""
        key = Consumer(consumer, run, split)
        follower = self._followers.setdefault(key, Follower(self._index, self.objects, key))
        return list(islice(follower.take(), limit))

    def reward(
        self, trajectory_id: str, score: float | None, *, name: str = "reward", source: RewardSource = "human"
    ) -> Reward:
        """Append a judgement to a stored trajectory; it counts as soon as it is shipped.

        Raises: NotFoundError: there is no such trajectory.
        """
        row = self.row(trajectory_id)
        reward = Reward(
            trajectory_id=trajectory_id,
            reward_id=new_id(),
            run=row.run or self._settings.run,
            at=time.time(),
            name=name,
            score=score,
            source=source,
            status="missing" if score is None else "ok",
        )
        open_recorder(self._settings).append(reward)
        return reward

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
        """Merge small segments, and rewrite those with bytes of something deleted; see ``compaction.compact``."""
        return compact(
            self._index, self.objects, limits=limits, only_dead=only_dead, dry_run=dry_run, progress=progress
        )

    def collect_garbage(
        self, *, grace: Grace | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> GcReport:
        """Remove objects that nobody needs; see ``garbage.collect_garbage``."""
        return collect_garbage(self._index, self.objects, grace=grace, dry_run=dry_run, progress=progress)


def open_store(settings: Settings | None = None) -> Store:
    """Open the store that the settings (None: those of the environment) name.

    Raises: UnreachableError: Redis or the object store does not answer.
    """
    settings = settings or load_settings()
    return Store(settings, open_redis(settings), open_objects(settings))
