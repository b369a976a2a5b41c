"""The search of an index: branch and bound over its blocks.

Of the blocks in which every requested name occurs, the plan skips one if its zone lies outside the ranges, or if
earlier pages covered all that it can hold. The others are read in the order of their best members: first the bitmaps,
many blocks at a time, then the numbers of the blocks in which members have all names.

Proof that the first ``limit`` answers are found: once there are ``limit`` of them, a block is left out only if its best
member comes after the last of these, and so do all blocks behind it in the plan. By reward, the highest buckets are
searched first, and what is in a lower one comes later.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from itertools import compress, takewhile
from math import isnan
from typing import Final, NamedTuple, TypeAlias

import msgspec

from agent_layer.store.index.blocks import BITMAP_BYTES, Matches, find_common, join_bitmaps, read_blocks, read_parts
from agent_layer.store.index.filters import Conditions
from agent_layer.store.index.index import BLOCK, Index, Position, Zone
from agent_layer.store.index.plan import Ordering, Turn, keep_with_any, plan_blocks, plan_turns

_FIRST_BLOCKS: Final = 8
"""Blocks whose bitmaps are read at first: the best ones often suffice. Then ever more."""
_MAX_BLOCKS: Final = 512
_NUMBERED_BLOCKS: Final = 16
"""Blocks whose numbers are read at a time."""
_DENSE: Final = 256
"""Members of a block from which on its whole column is unpacked."""
_NUMBER: Final = struct.Struct("<d")
_COLUMN: Final = struct.Struct(f"<{BLOCK}d")

_Entry: TypeAlias = tuple[float, float, int]
"""Value, start and ordinal of a member."""
_Standing: TypeAlias = tuple[Zone, int]
"""A block, and its members that have all names."""


class Match(NamedTuple):
    """One answer."""

    position: Position
    ordinal: int


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a search."""

    matches: list[Match]
    """[at most limit], in order."""
    num_blocks: int
    """Blocks of the whole index."""
    num_planned: int
    """Blocks that could hold answers; by reward, each is counted for each turn of buckets."""
    num_read: int
    """Blocks whose bitmaps were read before the answer was complete."""
    num_tested: int
    """Members of these that have all requested names, and whose numbers were compared."""


def search(
    index: Index, conditions: Conditions, ordering: Ordering, limit: int, after: Position | None = None
) -> Search:
    """Read blocks, best first, until none that is left can hold a better answer."""
    gone = set[int]()
    while True:
        best = _Best(ordering, limit, after, gone)
        counts = _find_best(index, conditions, ordering, best, after)
        ids = index.find_ids(ordinal for _, _, ordinal in best.entries)
        if not (missing := {ordinal for _, _, ordinal in best.entries} - ids.keys()):
            break
        gone |= missing  # deleted meanwhile: others take their place
    matches = [Match(Position(value, start, ids[ordinal]), ordinal) for value, start, ordinal in best.entries]
    behind = [one for one in matches if after is None or ordering.is_before(after, one.position)]
    return Search(
        matches=sorted(behind, reverse=ordering.descending)[:limit],
        num_blocks=counts.num_blocks,
        num_planned=counts.num_planned,
        num_read=counts.num_read,
        num_tested=counts.num_tested,
    )


class _Best:
    """The best members so far, and all that tie with the last of them or with where the answer begins."""

    def __init__(self, ordering: Ordering, limit: int, after: Position | None, gone: set[int]) -> None:
        self._ordering, self._limit, self._gone = ordering, limit, gone
        self._begin = None if after is None else after[:2]
        self._level, self._best = list[_Entry](), list[_Entry]()
        self._bound: tuple[float, float] | None = None

    @property
    def entries(self) -> list[_Entry]:
        """All of them; ties are in no order."""
        return [*self._level, *self._best]

    @property
    def is_full(self) -> bool:
        """Whether there are as many as wanted."""
        return self._bound is not None

    @property
    def num_lacking(self) -> int:
        """Members that are still wanted."""
        return max(0, self._limit - len(self._best))

    def may_grow_from(self, zone: Zone) -> bool:
        """Whether a member of the block may be better than the last one that is wanted."""
        return self._bound is None or not self._ordering.is_before(self._bound, self._ordering.best_bound(zone))

    def add(self, fresh: Sequence[_Entry]) -> None:
        """Add members, and drop those behind the last one that is wanted."""
        is_before, begin, bound = self._ordering.is_before, self._begin, self._bound
        if self._gone:
            fresh = [one for one in fresh if one[2] not in self._gone]
        if begin is not None:
            self._level += [one for one in fresh if one[:2] == begin]
            fresh = [one for one in fresh if is_before(begin, one[:2])]
        if bound is not None:
            fresh = [one for one in fresh if not is_before(bound, one[:2])]
        self._best = sorted({*self._best, *fresh}, reverse=self._ordering.descending)
        if len(self._best) >= self._limit:
            self._bound = last = self._best[self._limit - 1][:2]
            tied = takewhile(lambda one: one[:2] == last, self._best[self._limit :])
            self._best = [*self._best[: self._limit], *tied]


class _Counts(NamedTuple):
    num_blocks: int
    num_planned: int
    num_read: int
    num_tested: int


def _find_best(
    index: Index, conditions: Conditions, ordering: Ordering, best: _Best, after: Position | None
) -> _Counts:
    scope = index.read_map(conditions, conditions.without)
    turns = plan_turns(scope.buckets, conditions.ranges, ordering, after)
    places = index.blocks_with([name for turn in turns for name in turn.any_of or ()])
    members = _Members(index, conditions, scope.places | places)
    num_planned = num_read = num_tested = 0
    for turn in turns:
        zones = keep_with_any(scope.zones, turn.any_of, places)
        left, size = plan_blocks(zones, conditions.ranges, ordering, after), _FIRST_BLOCKS
        num_planned += len(left)
        while left:
            standing, num_read = members.find(left[:size], turn.any_of), num_read + len(left[:size])
            left, size = left[size:], min(8 * size, _MAX_BLOCKS)
            while standing:
                num_chosen = _count_needed(standing, best.num_lacking)
                chosen, standing = standing[:num_chosen], standing[num_chosen:]
                best.add([*_read_entries(index, chosen, turn, ordering)])
                num_tested += sum(bits.bit_count() for _, bits in chosen)
                standing = [*takewhile(lambda one: best.may_grow_from(one[0]), standing)]
            left = [*takewhile(best.may_grow_from, left)]
        if ordering.column == "reward" and best.is_full:
            break  # what is in lower buckets comes later
    return _Counts(scope.num_blocks, num_planned, num_read, num_tested)


class _Members:
    """Members of blocks that have all names, each block read once."""

    def __init__(self, index: Index, conditions: Conditions, places: Mapping[str, AbstractSet[int]]) -> None:
        self._index, self._conditions, self._places = index, conditions, places
        self._known = dict[int, int]()

    def find(self, zones: Sequence[Zone], any_of: Sequence[str] | None) -> list[_Standing]:
        """Return the blocks with such members that are in one of the bitmaps, too; None: in any."""
        if fresh := [zone.block for zone in zones if zone.block not in self._known]:
            rests = [one.rest for one in self._conditions.bounded]
            found = self._read(fresh, self._conditions.names, [*self._conditions.without, *rests])
            self._known |= _split(fresh, find_common(self._index, found, self._conditions))
        standing = [(zone, self._known[zone.block]) for zone in zones if self._known[zone.block]]
        if any_of is None or not standing:
            return standing
        blocks = [zone.block for zone, _ in standing]
        here = _split(blocks, join_bitmaps(self._read(blocks, (), any_of).bitmaps, any_of))
        return [(zone, both) for zone, bits in standing if (both := bits & here[zone.block])]

    def _read(self, blocks: Sequence[int], needed: Sequence[str], others: Sequence[str]) -> Matches:
        here = [name for name in others if not self._places[name].isdisjoint(blocks)]
        return read_blocks(self._index, blocks, [*needed, *here], ())


def _split(blocks: Sequence[int], members: int) -> dict[int, int]:
    """Return the members by block."""
    packed = members.to_bytes(BITMAP_BYTES * len(blocks))
    return {
        block: int.from_bytes(packed[begin : begin + BITMAP_BYTES])
        for block, begin in zip(blocks, range(0, len(packed), BITMAP_BYTES), strict=True)
    }


def _count_needed(standing: Sequence[_Standing], num_lacking: int) -> int:
    """Return how many blocks have enough members, if all of these are in range."""
    num_members = 0
    for number, (_, bits) in enumerate(standing[:_NUMBERED_BLOCKS], start=1):
        num_members += bits.bit_count()
        if num_members >= num_lacking:
            return number
    return min(len(standing), _NUMBERED_BLOCKS)


def _read_entries(index: Index, chosen: Sequence[_Standing], turn: Turn, ordering: Ordering) -> Iterator[_Entry]:
    """Yield the members whose numbers are known, and in range."""
    columns = list(dict.fromkeys((ordering.column, "started_at", *(one.column for one in turn.ranges))))
    stored = read_parts(index, [zone.block for zone, _ in chosen], (), columns)
    for at, (zone, bits) in enumerate(chosen):
        places = _list_places(bits)
        for wanted in turn.ranges:
            numbers = _pick(stored[wanted.column][at], places)
            places = [
                place for place, number in zip(places, numbers, strict=True) if wanted.low <= number <= wanted.high
            ]
        values = starts = _pick(stored[ordering.column][at], places)
        if ordering.column != "started_at":
            starts = _pick(stored["started_at"][at], places)
        first = zone.block * BLOCK
        for value, start, place in zip(values, starts, places, strict=True):
            if not isnan(value):
                yield value, start, first + place


def _list_places(bits: int) -> list[int]:
    """Return the positions of the members in their block."""
    text = f"{bits:0{BLOCK}b}"
    if bits.bit_count() >= _DENSE:
        return [*compress(range(BLOCK), map(int, text))]
    return [found.start() for found in re.finditer("1", text)]


def _pick(column: bytes, places: Sequence[int]) -> list[float]:
    """Return the numbers at some places of a column."""
    if len(places) >= _DENSE:
        numbers = _COLUMN.unpack(column)
        return [numbers[place] for place in places]
    return [number for place in places for number in _NUMBER.unpack_from(column, 8 * place)]
