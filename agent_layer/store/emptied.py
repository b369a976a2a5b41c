"""This file holds which groups lose the last of what is stored of them when trajectories are deleted."""

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple, cast

from agent_layer.schema.codec import decode
from agent_layer.schema.group import Group
from agent_layer.store.filters import Filters
from agent_layer.store.index import Index
from agent_layer.store.pages import pages_of
from agent_layer.store.query import scan_trajectories

__all__ = ["Emptied", "find_emptied", "groups_of_task"]

_PAGE = 256


class Emptied(NamedTuple):
    """Groups of which nothing stored is left."""

    closed: list[str]
    open: list[str]
    """The dispatcher goes on trying these until they are cancelled."""


class _Candidate(NamedTuple):
    group_id: str
    run: str
    task_id: str
    members: list[str]
    """Accepted attempts; none while the group is open."""
    is_open: bool


def find_emptied(index: Index, group_ids: Iterable[str], condemned: AbstractSet[str]) -> Emptied:
    """Tell which of these groups have nothing left when the condemned trajectories are dead.

    A closed group lives as long as one of its members does; one without members, or an open one, as long as any
    attempt of it is stored.
    """
    candidates = [found for page in pages_of(group_ids, _PAGE) for found in _look_up(index, page)]
    emptied = [one for one in candidates if one.members and not _has_survivor(index, one.members, condemned)]
    unpeopled = [one for one in candidates if not one.members]
    for run, task_id in sorted({(one.run, one.task_id) for one in unpeopled}):
        alive = _groups_alive(index, {"run": run, "task": task_id}, condemned)
        asked = [one for one in unpeopled if (one.run, one.task_id) == (run, task_id)]
        emptied += [one for one in asked if one.group_id not in alive]
    return Emptied(
        sorted(one.group_id for one in emptied if not one.is_open), [one.group_id for one in emptied if one.is_open]
    )


def groups_of_task(index: Index, task_id: str, run: str | None) -> Iterator[str]:
    """All groups of a task, in one run or in all: those that the dispatcher holds open, and closed ones.

    Looked for in the order in which a group moves, so that none is missed on its way; some may be named twice.
    """
    keys = index.keys
    yield from _those_of(_look_up_all(index, _members(index, keys.queue("open"))), task_id, run)
    decided = cast("list[tuple[bytes, dict[bytes, bytes]]]", index.redis.xrange(keys.outbox))
    closing = [fields[b"group_id"] for _, fields in decided if fields.get(b"kind") == b"group"]
    yield from _those_of(_look_up_all(index, closing), task_id, run)
    runs = [run] if run else [name.decode() for name in cast("set[bytes]", index.redis.smembers(keys.runs))]
    for name in runs:
        yield from _those_of(_look_up_all(index, _members(index, keys.closed_groups(name))), task_id, run)


def _those_of(groups: Iterable[_Candidate], task_id: str, run: str | None) -> Iterator[str]:
    return (one.group_id for one in groups if one.task_id == task_id and run in (None, one.run))


def _members(index: Index, key: str) -> list[bytes]:
    return cast("list[bytes]", index.redis.zrange(key, 0, -1))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py


def _look_up_all(index: Index, group_ids: Iterable[bytes]) -> Iterator[_Candidate]:
    for page in pages_of((one.decode() for one in group_ids), _PAGE):
        yield from _look_up(index, page)


def _look_up(index: Index, group_ids: Collection[str]) -> Iterator[_Candidate]:
    """What the index says of groups, else the queue; those that neither knows are left out."""
    pipeline = index.pipeline()
    for group_id in group_ids:
        pipeline.get(index.keys.group(group_id))
        pipeline.hmget(index.keys.queue("g", group_id), "run", "task_id", "state")
    told = cast("list[bytes | list[bytes | None] | None]", pipeline.execute())
    for group_id, stored, queued in zip(group_ids, told[::2], told[1::2], strict=True):
        run, task_id, state = cast("list[bytes | None]", queued)
        if isinstance(stored, bytes) and isinstance(group := decode(stored), Group):
            yield _Candidate(group_id, group.run, group.task_id, group.trajectory_ids, is_open=False)
        elif run is not None and task_id is not None:
            yield _Candidate(group_id, run.decode(), task_id.decode(), [], is_open=state == b"open")


def _has_survivor(index: Index, members: Iterable[str], condemned: AbstractSet[str]) -> bool:
    left = [one for one in members if one not in condemned]
    return not all(index.are_dead(left))


def _groups_alive(index: Index, filters: Filters, condemned: AbstractSet[str]) -> set[str]:
    rows = scan_trajectories(index, filters)
    return {row.group_id for row in rows if row.group_id and row.trajectory_id not in condemned}
