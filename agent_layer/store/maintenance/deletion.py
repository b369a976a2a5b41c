"""Deletion: tombstones are stored in the objects first, then the index forgets, then the bytes go.

A deletion that is stopped between two steps is finished by repeating it. Once its tombstones are stored,
``store check --repair`` and ``store reindex`` finish it, too. It covers what the index knew at that moment, possibly
with attempts that still run: their later records are dropped, and never stored where the shipper knows of the deletion.
Logs of unknown attempts that wait on other machines need another deletion.

A group is deleted with its last stored member.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Set as AbstractSet
from itertools import chain
from typing import NamedTuple, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import ObjectStore, batched
from agent_layer.schema import FINAL_STATUSES, Group, decode, owner_text, trajectory_owner
from agent_layer.state import remove_checkpoints
from agent_layer.store.consumers.trained_batches import find_naming_batches
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.index.search import scan_trajectories
from agent_layer.store.maintenance.lock import check_index_complete
from agent_layer.store.reading.reader import trajectory_not_found
from agent_layer.store.segments.tombstones import write_tombstones

_PAGE = 256
_MAX_OBJECT = 4_096
"""Tombstones in one object."""


class EmptyGroups(NamedTuple):
    """Groups without stored members."""

    closed: list[str]
    open: list[str]
    """The dispatcher keeps trying these until they are cancelled."""


class _Candidate(NamedTuple):
    group_id: str
    run: str
    task_id: str
    members: list[str]
    """Accepted attempts; none while the group is open."""
    is_open: bool


def find_empty_groups(index: Index, group_ids: Iterable[str], condemned: AbstractSet[str]) -> EmptyGroups:
    """Return which of these groups have nothing left once the condemned trajectories are deleted.

    A closed group stays as long as one of its members is stored; one without members, or an open one, as long as any
    of its attempts is stored.
    """
    candidates = [found for page in batched(group_ids, _PAGE) for found in _look_up(index, page)]
    emptied = [one for one in candidates if one.members and not _has_survivor(index, one.members, condemned)]
    memberless = [one for one in candidates if not one.members]
    for run, task_id in sorted({(one.run, one.task_id) for one in memberless}):
        rows = scan_trajectories(index, {"run": run, "task": task_id})
        alive = {row.group_id for row in rows if row.trajectory_id not in condemned}
        matching = [one for one in memberless if (one.run, one.task_id) == (run, task_id)]
        emptied += [one for one in matching if one.group_id not in alive]
    return EmptyGroups(
        sorted(one.group_id for one in emptied if not one.is_open), [one.group_id for one in emptied if one.is_open]
    )


def find_groups_of_task(index: Index, task_id: str, run: str | None) -> Iterator[str]:
    """Yield all groups of a task, in one run or in all: those open at the dispatcher, and closed ones.

    The order of the reads is the order in which a group moves, so none is missed on its way; some may come twice.
    """
    keys = index.keys
    yield from _select_groups(_look_up_all(index, _members(index, keys.queue("open"))), task_id, run)
    decided = cast("list[tuple[bytes, dict[bytes, bytes]]]", index.redis.xrange(keys.outbox))
    closing = [fields[b"group_id"] for _, fields in decided if fields.get(b"kind") == b"group"]
    yield from _select_groups(_look_up_all(index, closing), task_id, run)
    runs = [run] if run else [name.decode() for name in cast("set[bytes]", index.redis.smembers(keys.runs))]
    for name in runs:
        yield from _select_groups(_look_up_all(index, _members(index, keys.closed_groups(name))), task_id, run)


def _select_groups(groups: Iterable[_Candidate], task_id: str, run: str | None) -> Iterator[str]:
    return (one.group_id for one in groups if one.task_id == task_id and run in (None, one.run))


def _members(index: Index, key: str) -> list[bytes]:
    return cast("list[bytes]", index.redis.zrange(key, 0, -1))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py


def _look_up_all(index: Index, group_ids: Iterable[bytes]) -> Iterator[_Candidate]:
    for page in batched((one.decode() for one in group_ids), _PAGE):
        yield from _look_up(index, page)


def _look_up(index: Index, group_ids: Collection[str]) -> Iterator[_Candidate]:
    """Yield groups as the index knows them, else as the queue does; unknown ones are left out."""
    pipeline = index.pipeline()
    for group_id in group_ids:
        pipeline.get(index.keys.group(group_id))
        pipeline.hmget(index.keys.queue("g", group_id), "run", "task_id", "state")
    rows = cast("list[bytes | list[bytes | None] | None]", pipeline.execute())
    for group_id, stored, queued in zip(group_ids, rows[::2], rows[1::2], strict=True):
        run, task_id, state = cast("list[bytes | None]", queued)
        if isinstance(stored, bytes) and isinstance(group := decode(stored), Group):
            yield _Candidate(group_id, group.run, group.task_id, group.trajectory_ids, is_open=False)
        elif run is not None and task_id is not None:
            yield _Candidate(group_id, run.decode(), task_id.decode(), [], is_open=state == b"open")


def _has_survivor(index: Index, members: Iterable[str], condemned: AbstractSet[str]) -> bool:
    left = [one for one in members if one not in condemned]
    return not all(index.are_deleted([*map(trajectory_owner, left)]))


class DeletionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a deletion, or of its dry run."""

    num_trajectories: int
    num_running: int
    """Those without a known end."""
    num_groups: int
    """Closed groups that go with their last member."""
    num_bytes: int
    """Size of the trajectories' frames."""
    num_segments_to_rewrite: int
    """Segments with these frames, or with groups or trained batches that name them."""
    num_segments_left: int = 0
    """Segments that still hold deleted bytes, of this deletion or an earlier one."""
    open_groups: list[str] = []
    """Groups without stored members that the dispatcher still tries. Cancel them before the deletion (a dry run names
    them), or their further attempts will be stored."""
    learned: dict[str, list[int]] = {}
    """Updates that had learned from the trajectories, ascending, by run. Their weights stay as they are; see recall."""
    dry_run: bool = False


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories to delete, and what goes with them."""

    trajectory_ids: list[str]
    group_ids: list[str]
    open_groups: list[str]
    num_running: int
    num_bytes: int
    segments: frozenset[str]
    """Names of segments with their bytes, or with groups or trained batches that name them."""
    runs: frozenset[str]
    learned: dict[str, list[int]]
    """See ``DeletionReport``."""


def delete_trajectories(
    index: Index,
    objects: ObjectStore,
    trajectory_id: str | None,
    filters: Filters,
    *,
    dry_run: bool,
    purge: Callable[[], object] | None,
) -> DeletionReport:
    """Delete the trajectory of this id, or those that pass the filters; see ``execute_deletion``.

    Raises:
        BadInputError: no condition is given, or both kinds are; or the index is being rebuilt.
        NotFoundError: there never was such a trajectory.
    """
    check_index_complete(index.redis, index.keys)
    deletion = plan_deletion(index, _find_condemned(index, trajectory_id, filters), filters)
    if not dry_run:
        execute_deletion(index, objects, deletion, "deleted", purge)
    return summarise_deletion(index, deletion, dry_run=dry_run)


def plan_deletion(index: Index, rows: Iterable[TrajectoryRow], whole: Filters | None = None) -> Deletion:
    """Return what a deletion of these trajectories comprises.

    Args:
        index: of the namespace.
        rows: trajectories to delete.
        whole: the filters that found them; if they name only a task, or a task and its run, the task's groups without
            stored attempts are deleted, too.
    """
    trajectory_ids, segments, runs = list[str](), set[str](), set[str]()
    candidates = dict.fromkeys(_groups_meant(index, whole or {}))
    num_running = num_bytes = 0
    for page in batched(rows, _PAGE):
        trajectory_ids += [row.trajectory_id for row in page]
        runs |= {row.run for row in page if row.run}
        candidates |= dict.fromkeys(row.group_id for row in page if row.group_id)
        num_running += sum(row.status not in FINAL_STATUSES for row in page)
        for places in _places(index, trajectory_ids[-len(page) :]):
            segments |= {name.decode() for name in places}
            num_bytes += sum(int(place.split()[1]) for place in places.values())
    for page in batched(candidates, _PAGE):  # also surviving groups: they are rewritten without the deleted
        held = cast("list[bytes | None]", index.redis.hmget(index.keys.group_segments, page))
        segments |= {name for names in held if names for name in names.decode().split()}
    condemned = frozenset(trajectory_ids)
    naming = find_naming_batches(index.redis, index.keys, runs, condemned)
    segments |= naming.segments
    emptied = find_empty_groups(index, candidates, condemned)
    return Deletion(
        trajectory_ids=trajectory_ids,
        group_ids=emptied.closed,
        open_groups=emptied.open,
        num_running=num_running,
        num_bytes=num_bytes,
        segments=frozenset(segments),
        runs=frozenset(runs),
        learned=naming.steps,
    )


def execute_deletion(
    index: Index, objects: ObjectStore, deletion: Deletion, reason: str, purge: Callable[[], object] | None
) -> None:
    """Store tombstones, then remove the trajectories from the index, then their bytes.

    Args:
        index: of the namespace.
        objects: store of the bytes.
        deletion: what to delete.
        reason: ``deleted`` or ``expired``, for the tombstones.
        purge: rewrites the segments with deleted bytes, of this deletion or earlier ones; None leaves the bytes
            until the next purge.
    """
    owners = [
        *(owner_text("group", one) for one in deletion.group_ids),
        *map(trajectory_owner, deletion.trajectory_ids),
    ]
    times = [
        write_tombstones(index.keys, objects, page, reason) for page in batched(owners, _MAX_OBJECT)
    ]  # all of them first, so that a rebuild knows the whole deletion
    _note(index, deletion.segments)
    if times:
        apply_tombstones(index.redis, index.keys, owners, max(times))
        trained = frozenset(deletion.trajectory_ids)  # trained meanwhile, perhaps; commits note later ones
        _note(index, find_naming_batches(index.redis, index.keys, deletion.runs, trained).segments)
        _clear_queue(index, deletion.group_ids)
        remove_checkpoints(index.keys, objects, trained)
    if purge:
        purge()
        if index.redis.scard(index.keys.rewrite):  # noted meanwhile, such as that of a cancelled group
            purge()


def summarise_deletion(index: Index, deletion: Deletion, *, dry_run: bool) -> DeletionReport:
    """Return the report of a deletion."""
    return DeletionReport(
        num_trajectories=len(deletion.trajectory_ids),
        num_running=deletion.num_running,
        num_groups=len(deletion.group_ids),
        num_bytes=deletion.num_bytes,
        num_segments_to_rewrite=len(deletion.segments),
        num_segments_left=index.redis.scard(index.keys.rewrite),
        open_groups=deletion.open_groups,
        learned=deletion.learned,
        dry_run=dry_run,
    )


def _find_condemned(index: Index, trajectory_id: str | None, filters: Filters) -> Iterator[TrajectoryRow]:
    """Return the trajectories to delete; none for one that is deleted already."""
    is_filtered = any(value not in (None, {}) for value in filters.values())
    if is_filtered == (trajectory_id is not None):
        found = "both" if is_filtered else "neither, which would delete everything"
        raise BadInputError(
            f"delete: expected either a trajectory id or at least one filter, found {found}; give one of them"
        )
    return scan_trajectories(index, filters) if trajectory_id is None else _find_one(index, trajectory_id)


def _find_one(index: Index, trajectory_id: str) -> Iterator[TrajectoryRow]:
    if rows := index.rows([trajectory_id]):
        return iter(rows)
    if index.chunks(trajectory_id):  # only its contents are stored yet, which make no row
        return iter([TrajectoryRow(trajectory_id=trajectory_id)])
    if index.are_deleted([trajectory_owner(trajectory_id)]) == [True]:
        return iter(())
    raise trajectory_not_found(trajectory_id, index.keys.namespace)


def _groups_meant(index: Index, filters: Filters) -> Iterator[str]:
    given = {name for name, value in filters.items() if value is not None}
    if (task := filters.get("task")) is not None and given <= {"task", "run"}:
        yield from find_groups_of_task(index, task, filters.get("run"))


def _places(index: Index, trajectory_ids: Iterable[str]) -> list[dict[bytes, bytes]]:
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hgetall(index.keys.chunks(trajectory_id))
    return cast("list[dict[bytes, bytes]]", pipeline.execute())


def _note(index: Index, segments: Iterable[str]) -> None:
    for page in batched(segments, _PAGE):
        index.redis.sadd(index.keys.rewrite, *page)


def _clear_queue(index: Index, group_ids: Iterable[str]) -> None:
    """Remove closed groups from the queue: the dispatcher uses their tombstones instead."""
    queue = index.keys.queue
    for page in batched(group_ids, _PAGE):
        pipeline = index.pipeline()
        for group_id in page:
            pipeline.hmget(queue("g", group_id), "state", "launched")
        cleared = index.pipeline()
        for group_id, (state, size) in zip(page, cast("list[list[bytes | None]]", pipeline.execute()), strict=True):
            if state == b"closed" and size is not None:
                rollouts = [f"{group_id}.{member}" for member in range(int(size))]
                cleared.unlink(*chain([queue("g", group_id)], (queue("r", one) for one in rollouts)))
                cleared.zrem(queue("dead"), *rollouts)
        cleared.execute()
