"""This file holds how segments leave: first the index, for those of whom others hold everything, then the objects."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

import msgspec
from redis import Redis

from agent_layer.schema.segment import SegmentFooter
from agent_layer.store.commit import remember_replaced
from agent_layer.store.keys import Keys
from agent_layer.store.living import is_batch, is_group
from agent_layer.store.pages import pages_of
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.scripts import load_script
from agent_layer.store.segments import segment_key

__all__ = ["retire_segments"]

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


def retire_segments(
    redis: Redis, keys: Keys, objects: ObjectStore, olds: Sequence[SegmentFooter], news: Sequence[SegmentFooter]
) -> list[str]:
    """Take segments away of which all that lives is in others that are committed and can be read.

    Returns: names of those that went. One that somebody needs after all, because the index lost the others, stays.
    """
    remember_replaced(redis, keys, [one.name for one in olds], news[0].name if news else "")
    leaves = list(_leaves(olds, news))
    needed = _leave(redis, keys, leaves)
    gone = [one.name for one in olds if one.name not in needed]
    for page in pages_of(gone, _PAGE):
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
        for page in pages_of(names, _NAMES_AT_ONCE):
            yield _Leave(owner, new_of.get(owner, ""), page)


def _filed(footer: SegmentFooter) -> Iterator[str]:
    """Owners of whom the index says where their bytes lie."""
    yield from (one.trajectory_id for one in footer.trajectories)
    yield from (chunk.owner for chunk in footer.chunks if is_group(chunk.owner) or is_batch(chunk.owner))


def _leave(redis: Redis, keys: Keys, leaves: Iterable[_Leave]) -> set[str]:
    """Names that are still needed."""
    script = load_script(redis, "retire")
    needed: set[str] = set()
    for page in pages_of(leaves, _OWNERS_AT_ONCE):
        found = cast("list[bytes]", script(keys=[keys.name()], args=[msgspec.msgpack.encode(page)]))
        owners = {owner.decode() for owner in found}
        needed.update(name for one in page if one.owner in owners for name in one.olds)
    return needed


def _delete(keys: Keys, objects: ObjectStore, names: Collection[str]) -> None:
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for _ in threads.map(objects.delete, [segment_key(keys, name) for name in names]):
            pass
