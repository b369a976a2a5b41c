"""Removal of superseded segments: from the index first, then from the object store.

A segment is superseded if others hold each of its live records. Bytes decide that, not names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

import msgspec
from redis import Redis

from agent_layer.infra import Keys, ObjectStore, batched, durable_writes
from agent_layer.schema import Chunk, SegmentFooter, split_owner
from agent_layer.store.index.commit import remember_replaced
from agent_layer.store.index.scripts import RETIRE
from agent_layer.store.maintenance.merge import BrokenSegmentError, MergeInput, open_segment, read_live_records
from agent_layer.store.maintenance.merge_plan import find_day, may_replace
from agent_layer.store.segments.format import segment_key
from agent_layer.store.segments.tombstones import deletion_times, named_owners

_OWNERS_AT_ONCE = 64
"""Most owners for one script, so that Redis stays responsive."""
_NAMES_AT_ONCE = 64
"""Most segments of one owner for one script; more take several calls."""
_PAGE = 256
_NUM_AT_ONCE = 16


class _Removal(NamedTuple):
    """Segments that an owner no longer needs; see retire.lua."""

    owner: str
    new: str
    olds: Sequence[str]


def remove_segments(
    redis: Redis, keys: Keys, objects: ObjectStore, olds: Sequence[SegmentFooter], news: Sequence[SegmentFooter]
) -> list[str]:
    """Remove segments whose live records are all in other segments that are committed and readable.

    Returns: names of the removed ones. A segment that is still needed, because the index lost the others, stays.
    """
    leaves = list(_leaves(olds, news))

    def leave() -> list[str]:
        remember_replaced(redis, keys, [one.name for one in olds], news[0].name if news else "")
        needed = _leave(redis, keys, leaves)
        gone = [one.name for one in olds if one.name not in needed]
        for page in batched(gone, _PAGE):
            redis.hdel(keys.segments, *page)
        return gone

    gone = durable_writes(redis, keys).complete(redis, leave)
    for page in batched(gone, _PAGE):
        with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
            for _ in threads.map(objects.delete, [segment_key(keys, name) for name in page]):
                pass
        redis.srem(keys.rewrite, *page)
    return gone


def _leaves(olds: Iterable[SegmentFooter], news: Iterable[SegmentFooter]) -> Iterator[_Removal]:
    new_of = {owner: one.name for one in news for owner in _placed_owners(one)}
    olds_of: dict[str, list[str]] = {}
    for one in olds:
        for owner in _placed_owners(one):
            olds_of.setdefault(owner, []).append(one.name)
    for owner, names in olds_of.items():
        for page in batched(names, _NAMES_AT_ONCE):
            yield _Removal(owner, new_of.get(owner, ""), page)


def _placed_owners(footer: SegmentFooter) -> Iterator[str]:
    """Return the owners whose places the index stores."""
    return (chunk.owner for chunk in footer.chunks if split_owner(chunk.owner)[0] != "policy")


def _leave(redis: Redis, keys: Keys, leaves: Iterable[_Removal]) -> set[str]:
    """Return the names that are still needed."""
    script = RETIRE.load(redis)
    needed: set[str] = set()
    for page in batched(leaves, _OWNERS_AT_ONCE):
        found = cast("list[bytes]", script(keys=[keys.name()], args=[msgspec.msgpack.encode(page)]))
        owners = {owner.decode() for owner in found}
        needed.update(name for one in page if one.owner in owners for name in one.olds)
    return needed


def find_successors(
    keys: Keys, objects: ObjectStore, committed: Iterable[str], names: Collection[str]
) -> Mapping[str, list[MergeInput]]:
    """Return the committed segments that claim to replace these, by name; unreadable ones are left out."""
    wanted, days = set(names), {find_day(name) for name in names}
    candidates = [one for one in committed if may_replace(one) and find_day(one) in days]

    def read(name: str) -> MergeInput | None:
        try:
            return open_segment(keys, objects, name, whole=False)
        except BrokenSegmentError:
            return None

    found: defaultdict[str, list[MergeInput]] = defaultdict(list)
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for source in filter(None, threads.map(read, candidates)):
            for name in wanted.intersection(source.footer.replaces):
                found[name].append(source)
    return found


def is_superseded(redis: Redis, keys: Keys, segment: MergeInput, others: Sequence[MergeInput]) -> bool:
    """Whether each live record of a segment is in one of the others.

    Raises: BrokenSegmentError: one of them is unreadable.
    """
    deaths = frozenset(deletion_times(redis, keys, named_owners(segment.footer)))
    places: defaultdict[str, list[tuple[MergeInput, Chunk]]] = defaultdict(list)
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
