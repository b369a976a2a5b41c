"""This file holds deletion: what is to die is said in the objects first, then leaves the index, then its bytes go.

A deletion that is stopped between two of these steps is finished by asking for it again; once its tombstones are
stored, ``store check --repair`` and ``store reindex`` finish it too. What was found is what the index knew at that
moment. Attempts that still run may be among it: whatever they say later is dropped, and never stored where the
shipper has heard of the deletion. Logs of unknown attempts that wait on other machines are found by deleting again.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.store.batches import segments_of_batches
from agent_layer.store.checkpoints import remove_checkpoints_of
from agent_layer.store.emptied import find_emptied, groups_of_task
from agent_layer.store.filters import Filters
from agent_layer.store.index import Index
from agent_layer.store.pages import pages_of
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.query import scan_trajectories
from agent_layer.store.reading import not_found
from agent_layer.store.rows import TrajectoryRow
from agent_layer.store.tombstones import forget, write_tombstones
from agent_layer.store.turns import check_whole

__all__ = ["Deletion", "DeletionReport", "carry_out", "delete_trajectories", "plan_deletion", "report_on"]

_PAGE = 256
_LARGEST_OBJECT = 4_096
"""Tombstones in one object."""


class DeletionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted, or would be."""

    num_trajectories: int
    num_running: int
    """Of these, without an end that is known."""
    num_groups: int
    """Closed groups that go too, because nothing of them is left."""
    num_bytes: int
    """Of the frames in which the trajectories lie."""
    num_segments_to_rewrite: int
    """Segments that hold these frames, or groups or trained batches that name them."""
    num_segments_left: int = 0
    """Segments that still hold bytes of something dead, of this deletion or an earlier one."""
    open_groups: list[str] = []
    """Groups of which nothing is stored any more but that the dispatcher still tries, with their tasks in its queue.
    Cancel them before the deletion (a dry run names them), or what they still try will be stored."""
    dry_run: bool = False


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to die, and what it takes with it."""

    trajectory_ids: list[str]
    group_ids: list[str]
    open_groups: list[str]
    num_running: int
    num_bytes: int
    segments: frozenset[str]
    """Names of those that hold bytes of it, or groups or trained batches that name it."""
    runs: frozenset[str]


def delete_trajectories(
    index: Index,
    objects: ObjectStore,
    trajectory_id: str | None,
    filters: Filters,
    *,
    dry_run: bool,
    purge: Callable[[], object] | None,
) -> DeletionReport:
    """Delete the trajectory of this id, or those that pass the filters; see ``carry_out``.

    Raises:
        BadInputError: no condition is given, or both kinds are; or the index is being rebuilt.
        NotFoundError: there never was such a trajectory.
    """
    check_whole(index.redis, index.keys)
    deletion = plan_deletion(index, _find_condemned(index, trajectory_id, filters), filters)
    if not dry_run:
        carry_out(index, objects, deletion, "deleted", purge)
    return report_on(index, deletion, dry_run=dry_run)


def plan_deletion(index: Index, rows: Iterable[TrajectoryRow], whole: Filters | None = None) -> Deletion:
    """Work out what the death of these trajectories means.

    Args:
        index: of the namespace.
        rows: of those that are to die.
        whole: the filters that found them; where they name a task and nothing but its run, its groups without any
            stored attempt are meant too.
    """
    trajectory_ids, segments, runs = list[str](), set[str](), set[str]()
    candidates = dict.fromkeys(_groups_meant(index, whole or {}))
    num_running = num_bytes = 0
    for page in pages_of(rows, _PAGE):
        trajectory_ids += [row.trajectory_id for row in page]
        runs |= {row.run for row in page if row.run}
        candidates |= dict.fromkeys(row.group_id for row in page if row.group_id)
        num_running += sum(row.status not in FINAL_STATUSES for row in page)
        for places in _places(index, trajectory_ids[-len(page) :]):
            segments |= {name.decode() for name in places}
            num_bytes += sum(int(place.split()[1]) for place in places.values())
    for page in pages_of(candidates, _PAGE):  # also of those that live: they are written again without the dead
        held = cast("list[bytes | None]", index.redis.hmget(index.keys.group_segments, page))
        segments |= {name for names in held if names for name in names.decode().split()}
    condemned = frozenset(trajectory_ids)
    segments |= segments_of_batches(index.redis, index.keys, runs, condemned)
    emptied = find_emptied(index, candidates, condemned)
    return Deletion(
        trajectory_ids=trajectory_ids,
        group_ids=emptied.closed,
        open_groups=emptied.open,
        num_running=num_running,
        num_bytes=num_bytes,
        segments=frozenset(segments),
        runs=frozenset(runs),
    )


def carry_out(
    index: Index, objects: ObjectStore, deletion: Deletion, reason: str, purge: Callable[[], object] | None
) -> None:
    """Make it so that nothing brings these back, then that nobody finds them, then that their bytes are gone.

    Args:
        index: of the namespace.
        objects: where the bytes lie.
        deletion: what is to die.
        reason: ``deleted`` or ``expired``, for the tombstones.
        purge: rewrites the segments that hold bytes of the dead, these or earlier ones; None leaves the bytes until
            the next purge.
    """
    owners = [*(f"group:{one}" for one in deletion.group_ids), *deletion.trajectory_ids]
    times = [
        write_tombstones(index.keys, objects, page, reason) for page in pages_of(owners, _LARGEST_OBJECT)
    ]  # all of them first: whatever happens next, a rebuild knows the whole of it
    _note(index, deletion.segments)
    if times:
        forget(index.redis, index.keys, owners, max(times))
        trained = frozenset(deletion.trajectory_ids)  # while this went on, perhaps; commits note later ones
        _note(index, segments_of_batches(index.redis, index.keys, deletion.runs, trained))
        _clear_queue(index, deletion.group_ids)
        remove_checkpoints_of(index.keys, objects, trained)
    if purge:
        purge()


def report_on(index: Index, deletion: Deletion, *, dry_run: bool) -> DeletionReport:
    """Sum a deletion up."""
    return DeletionReport(
        num_trajectories=len(deletion.trajectory_ids),
        num_running=deletion.num_running,
        num_groups=len(deletion.group_ids),
        num_bytes=deletion.num_bytes,
        num_segments_to_rewrite=len(deletion.segments),
        num_segments_left=index.redis.scard(index.keys.rewrite),
        open_groups=deletion.open_groups,
        dry_run=dry_run,
    )


def _find_condemned(index: Index, trajectory_id: str | None, filters: Filters) -> Iterator[TrajectoryRow]:
    """Find what is meant; nothing for a trajectory that is dead already."""
    is_filtered = any(value not in (None, {}) for value in filters.values())
    if is_filtered == (trajectory_id is not None):
        found = "both" if is_filtered else "neither, which would delete everything"
        raise BadInputError(
            f"delete: expected either a trajectory id or at least one filter, found {found};"
            " say which trajectories are meant"
        )
    return scan_trajectories(index, filters) if trajectory_id is None else _find_one(index, trajectory_id)


def _find_one(index: Index, trajectory_id: str) -> Iterator[TrajectoryRow]:
    if rows := index.rows([trajectory_id]):
        return iter(rows)
    if index.chunks(trajectory_id):  # only contents are stored of it yet, which make no row
        return iter([TrajectoryRow(trajectory_id=trajectory_id)])
    if index.are_dead([trajectory_id]) == [True]:
        return iter(())
    raise not_found(trajectory_id, index.keys.namespace)


def _groups_meant(index: Index, filters: Filters) -> Iterator[str]:
    given = {name for name, value in filters.items() if value is not None}
    if (task := filters.get("task")) is not None and given <= {"task", "run"}:
        yield from groups_of_task(index, task, filters.get("run"))


def _places(index: Index, trajectory_ids: Iterable[str]) -> list[dict[bytes, bytes]]:
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hgetall(index.keys.chunks(trajectory_id))
    return cast("list[dict[bytes, bytes]]", pipeline.execute())


def _note(index: Index, segments: Iterable[str]) -> None:
    for page in pages_of(segments, _PAGE):
        index.redis.sadd(index.keys.rewrite, *page)


def _clear_queue(index: Index, group_ids: Iterable[str]) -> None:
    """Take closed groups out of what the dispatcher remembers: it goes by their tombstones instead."""
    queue = index.keys.queue
    for page in pages_of(group_ids, _PAGE):
        asked = index.pipeline()
        for group_id in page:
            asked.hmget(queue("g", group_id), "state", "launched")
        cleared = index.pipeline()
        for group_id, (state, size) in zip(page, cast("list[list[bytes | None]]", asked.execute()), strict=True):
            if state == b"closed" and size is not None:
                rollouts = [f"{group_id}.{member}" for member in range(int(size))]
                cleared.unlink(*chain([queue("g", group_id)], (queue("r", one) for one in rollouts)))
                cleared.zrem(queue("dead"), *rollouts)
        cleared.execute()
