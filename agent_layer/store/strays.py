"""This file holds the search for bits in the index that no trajectory stands behind, and how they are cleared."""

from collections import defaultdict
from collections.abc import Iterator
from typing import cast

from redis import Redis

from agent_layer.store.index import COLUMNS
from agent_layer.store.keys import Keys
from agent_layer.store.pages import pages_of
from agent_layer.store.scripts import load_script

__all__ = ["count_strays"]

_PARTS = 16
"""Of a block, each looked at by scripts of its own."""
_NAMES_AT_ONCE = 256
"""Bitmaps that one script looks into at most, so that nobody waits long for Redis."""
_SCAN_COUNT = 1_000


def count_strays(redis: Redis, keys: Keys, *, clear: bool = False) -> dict[int, int]:
    """Count, by block, the bits that say something of nobody; only blocks that have some."""
    script, found = load_script(redis, "strays"), defaultdict[int, int](int)
    for block, names in sorted(_bitmaps(redis, keys).items()):
        for page in pages_of(names, _NAMES_AT_ONCE):
            for part in range(_PARTS):
                arguments = [block, part, "1" if clear else "", *page]
                found[block] += cast("int", script(keys=[keys.name()], args=arguments))
    return {block: num_strays for block, num_strays in found.items() if num_strays}


def _bitmaps(redis: Redis, keys: Keys) -> dict[int, list[str]]:
    """Names of the bitmaps of each block."""
    begin, bitmaps = keys.name("b", ""), defaultdict[int, list[str]](list)
    found = redis.scan_iter(match=f"{begin}*", count=_SCAN_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
    for key in cast("Iterator[bytes]", found):
        block, _, name = key.decode().removeprefix(begin).partition(":")
        if name not in COLUMNS and not name.startswith("ids:"):
            bitmaps[int(block)].append(name)
    return bitmaps
