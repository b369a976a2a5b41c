"""This file holds how segments leave: first the index, for those of whom others hold everything, then the objects.

This file holds which segments are left over: others hold all that lives of them. Bytes decide that, not names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

import msgspec
from redis import Redis

from agent_layer.infra import batched
from agent_layer.infra.objects import ObjectStore
from agent_layer.infra.redis import Keys
from agent_layer.schema import Chunk, SegmentFooter
from agent_layer.store.index import RETIRE, remember_replaced
from agent_layer.store.maintenance.merge import BrokenSegmentError, Source, open_segment, read_live_records
from agent_layer.store.maintenance.merge_plan import day_of, may_replace
from agent_layer.store.segments import deletion_times, is_batch, is_group, named_owners, segment_key

_OWNERS_AT_ONCE = 64
"""That one script handles at most, so that nobody waits long for Redis."""
_NAMES_AT_ONCE = 64
"""Of one owner that one script takes out; more of them are several calls."""
_PAGE = 256
_NUM_AT_ONCE = 16


class _Leave(NamedTuple):
    """What is no longer needed of an owner; see retire.lua."""

    owner: str
    new: str
    olds: Sequence[str]


def remove_segments(
    redis: Redis, keys: Keys, objects: ObjectStore, olds: Sequence[SegmentFooter], news: Sequence[SegmentFooter]
) -> list[str]:
    """Take segments away of which all that lives is in others that are committed and can be read.

    Returns: names of those that went. One that somebody needs after all, because the index lost the others, stays.
    """
    remember_replaced(redis, keys, [one.name for one in olds], news[0].name if news else "")
    leaves = list(_leaves(olds, news))
    needed = _leave(redis, keys, leaves)
    gone = [one.name for one in olds if one.name not in needed]
    for page in batched(gone, _PAGE):
        redis.hdel(keys.segments, *page)
        _delete(keys, objects, page)
        redis.srem(keys.rewrite, *page)
    return gone


def _leaves(olds: Iterable[SegmentFooter], news: Iterable[SegmentFooter]) -> Iterator[_Leave]:
    new_of = {owner: one.name for one in news for owner in _filed(one)}
    olds_of: dict[str, list[str]] = {}
    for one in olds:
        for owner in _filed(one):
            olds_of.setdefault(owner, []).append(one.name)
    for owner, names in olds_of.items():
        for page in batched(names, _NAMES_AT_ONCE):
            yield _Leave(owner, new_of.get(owner, ""), page)


def _filed(footer: SegmentFooter) -> Iterator[str]:
    """Owners of whom the index says where their bytes lie."""
    yield from (one.trajectory_id for one in footer.trajectories)
    yield from (chunk.owner for chunk in footer.chunks if is_group(chunk.owner) or is_batch(chunk.owner))


def _leave(redis: Redis, keys: Keys, leaves: Iterable[_Leave]) -> set[str]:
    """Names that are still needed."""
    script = RETIRE.load(redis)
    needed: set[str] = set()
    for page in batched(leaves, _OWNERS_AT_ONCE):
        found = cast("list[bytes]", script(keys=[keys.name()], args=[msgspec.msgpack.encode(page)]))
        owners = {owner.decode() for owner in found}
        needed.update(name for one in page if one.owner in owners for name in one.olds)
    return needed


def _delete(keys: Keys, objects: ObjectStore, names: Collection[str]) -> None:
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for _ in threads.map(objects.delete, [segment_key(keys, name) for name in names]):
            pass


def find_successors(
    keys: Keys, objects: ObjectStore, committed: Iterable[str], names: Collection[str]
) -> Mapping[str, list[Source]]:
    """Find the committed segments that say they replace these, by name; those that cannot be read are left out."""
    days = {day_of(name) for name in names}
    candidates = [one for one in committed if may_replace(one) and day_of(one) in days]

    def read(name: str) -> Source | None:
        try:
            return open_segment(keys, objects, name, whole=False)
        except BrokenSegmentError:
            return None

    found: defaultdict[str, list[Source]] = defaultdict(list)
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for source in filter(None, threads.map(read, candidates)):
            for name in set(names).intersection(source.footer.replaces):
                found[name].append(source)
    return found


def is_superseded(redis: Redis, keys: Keys, segment: Source, others: Sequence[Source]) -> bool:
    """Whether each living record of a segment is in one of the others.

    Raises: BrokenSegmentError: one of them cannot be read.
    """
    deaths = deletion_times(redis, keys, named_owners(segment.footer))
    places: defaultdict[str, list[tuple[Source, Chunk]]] = defaultdict(list)
    for other in others:
        for chunk in other.footer.chunks:
            places[chunk.owner].append((other, chunk))
    for chunk in segment.footer.chunks:
        needed = {one.content for one in read_live_records(segment, chunk, deaths)}
        for other, place in places[chunk.owner]:
            needed -= {one.content for one in read_live_records(other, place, deaths)}
        if needed:
            return False
    return True
