"""The search of an index: branch and bound over its blocks.

Of the blocks in which every requested name occurs, the plan skips one if its zone lies outside the ranges, or if
earlier pages covered all that it can hold. The others are read in the order of their best members: first the bitmaps,
many blocks at a time, then the numbers of the members that have all names.

Proof that the first ``limit`` answers are found: once there are ``limit`` of them, a block is left out only if its best
member comes after the last of these, and so do all blocks behind it in the plan. By reward, the members of the highest
buckets are looked at first, and what is in a lower bucket comes later.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from agent_layer.infra import batched
from agent_layer.store.index.blocks import BITMAP_BYTES, find_common, join_bitmaps, read_blocks
from agent_layer.store.index.filters import Conditions, NumberRange, find_bucket
from agent_layer.store.index.index import BlockMap, Index, Position, Zone
from agent_layer.store.index.members import Entry, MemberReader, Standing, count_members
from agent_layer.store.index.plan import Ordering, RewardTest, bucket_name, plan_blocks

_FIRST_BLOCKS: Final = 64
"""Blocks whose bitmaps are read at first; then ever more."""
_DENSE_BLOCKS: Final = 2
"""The same, where every member has all names."""
_MAX_BLOCKS: Final = 512
_FIRST_BUCKETS: Final = 4
"""Buckets that are read at first, by reward; then ever more."""
_FEWEST: Final = 64
"""Members whose numbers are read together at least, as some may be out of range."""
_FEW: Final = 256
"""Members whose rewards are rather compared than looked up in buckets."""
_MAX_BUCKETS: Final = 16
"""More than these are no narrow range: then it is quicker to compare the numbers."""
_ALL_REWARDS: Final = NumberRange("reward", -math.inf, math.inf)


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
    """Blocks that could hold answers."""
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
        scope = index.read_map(conditions, conditions.without)
        zones = plan_blocks(scope.zones, conditions.ranges, ordering, after)
        best = _Best(ordering, limit, after, gone)
        walk = _Walk(index, conditions, ordering, scope, best)
        if ordering.column == "reward":
            walk.search_by_reward(zones, after)
        else:
            walk.search_by_block(zones)
        ids = walk.find_ids()
        if not (missing := {ordinal for _, _, ordinal in best.entries} - ids.keys()):
            break
        gone |= missing  # deleted meanwhile: others take their place
    matches = [Match(Position(value, start, ids[ordinal]), ordinal) for value, start, ordinal in best.entries]
    behind = [one for one in matches if after is None or ordering.is_before(after, one.position)]
    return Search(
        matches=sorted(behind, reverse=ordering.descending)[:limit],
        num_blocks=scope.num_blocks,
        num_planned=len(zones),
        num_read=walk.num_read,
        num_tested=walk.num_tested,
    )


class _Best:
    """The best members so far, and all that tie with the last of them or with where the answer begins."""

    def __init__(self, ordering: Ordering, limit: int, after: Position | None, gone: set[int]) -> None:
        self._ordering, self._limit, self._gone = ordering, limit, gone
        self.begin = None if after is None else after[:2]
        self._level, self._best = list[Entry](), list[Entry]()
        self._bound: tuple[float, float] | None = None

    @property
    def entries(self) -> list[Entry]:
        """All of them; ties are in no order."""
        return [*self._level, *self._best]

    @property
    def is_full(self) -> bool:
        """Whether there are as many as wanted."""
        return self._bound is not None

    @property
    def num_kept(self) -> int:
        """Members of one block that can be among the best."""
        return self._limit + len(self._gone)

    @property
    def num_lacking(self) -> int:
        """Members that are still wanted, at least 1."""
        return max(1, self._limit - len(self._best))

    def may_grow_from(self, zone: Zone) -> bool:
        """Whether a member of the block may be better than the last one that is wanted."""
        return self._bound is None or not self._ordering.is_before(self._bound, self._ordering.best_bound(zone))

    def add(self, fresh: Sequence[Entry]) -> None:
        """Add members, and drop those behind the last one that is wanted."""
        is_before, begin, bound = self._ordering.is_before, self.begin, self._bound
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


class _Walk:
    """One walk over blocks, which adds to the best."""

    def __init__(self, index: Index, conditions: Conditions, ordering: Ordering, scope: BlockMap, best: _Best) -> None:
        self._index, self._conditions, self._scope, self._best = index, conditions, scope, best
        self._places: Mapping[str, AbstractSet[int]] = scope.places
        self._is_by_reward = ordering.column == "reward"
        self._reader = MemberReader(index, ordering, best.begin)
        self.num_read = self.num_tested = 0

    def find_ids(self) -> dict[int, str]:
        """Return the trajectories of the best, by ordinal; one that is gone is left out."""
        return self._reader.find_ids([ordinal for _, _, ordinal in self._best.entries])

    def search_by_block(self, zones: Sequence[Zone]) -> None:
        """Look through blocks in the order of their best members."""
        is_any = self._conditions.names == ("all",) and not self._conditions.without
        left, size = [*zones], _DENSE_BLOCKS if is_any else _FIRST_BLOCKS
        while left:
            standing = self._find_members(left[:size])
            num_first = self._reader.count_blocks(standing, self._best.num_lacking)
            self._consume(standing[:num_first], self._conditions.ranges)  # often the answer, without looking at buckets
            standing = [*takewhile(lambda one: self._best.may_grow_from(one[0]), standing[num_first:])]
            self._consume(*self._apply_buckets(standing))
            left = [*takewhile(self._best.may_grow_from, left[size:])]
            size = min(4 * size, _MAX_BLOCKS)

    def search_by_reward(self, zones: Sequence[Zone], after: Position | None) -> None:
        """Look through buckets, the highest first, in all blocks."""
        standing = [one for page in batched(zones, _MAX_BLOCKS) for one in self._find_members(page)]
        test = RewardTest.of([*self._conditions.ranges, _ALL_REWARDS], self._scope.buckets)
        fitting = sorted((*test.inside, *test.partly), reverse=True)
        left, size = [one for one in fitting if after is None or one <= find_bucket(after.value)], _FIRST_BUCKETS
        if count_members(standing) <= _FEW:
            return self._consume(standing, self._conditions.ranges)
        while left and not self._best.is_full:
            for group in self._group_by_bucket(standing, left[:size]):
                self._consume(group, self._conditions.ranges)
                if self._best.is_full:
                    return None  # what is in lower buckets comes later
            left, size = left[size:], 2 * size
        return None

    def _find_members(self, zones: Sequence[Zone]) -> list[Standing]:
        """Return the blocks in which members have all names."""
        blocks, conditions = [zone.block for zone in zones], self._conditions
        others = [*conditions.without, *(one.rest for one in conditions.bounded)]
        here = [name for name in others if not self._places[name].isdisjoint(blocks)]
        found = read_blocks(self._index, blocks, [*conditions.names, *here], ())
        self.num_read += len(blocks)
        bits = _split(blocks, find_common(self._index, found, conditions))
        return [(zone, bits[zone.block]) for zone in zones if bits[zone.block]]

    def _apply_buckets(self, standing: list[Standing]) -> tuple[list[Standing], Sequence[NumberRange]]:
        """Leave those that are in a bucket of rewards that may fit; return the ranges that remain to be compared."""
        ranges = self._conditions.ranges
        if count_members(standing) <= _FEW or all(one.column != "reward" for one in ranges):
            return standing, ranges
        test = RewardTest.of(ranges, self._scope.buckets)
        fitting = [*test.inside, *test.partly]
        if len(fitting) > _MAX_BUCKETS:
            return standing, ranges
        blocks, names = [zone.block for zone, _ in standing], [*map(bucket_name, fitting)]
        bits = _split(blocks, join_bitmaps(read_blocks(self._index, blocks, names, ()).bitmaps, names))
        left = [(zone, both) for zone, mine in standing if (both := mine & bits[zone.block])]
        return left, ranges if test.partly else [one for one in ranges if one.column != "reward"]

    def _group_by_bucket(self, standing: Sequence[Standing], buckets: Sequence[int]) -> Iterator[list[Standing]]:
        """Yield the members of the highest buckets, as many buckets at a time as may fill the answer."""
        blocks, names = [zone.block for zone, _ in standing], [*map(bucket_name, buckets)]
        found = read_blocks(self._index, blocks, names, ())
        group = dict.fromkeys(blocks, 0)
        for name in names:
            bits = _split(blocks, found.bitmaps[name])
            group = {zone.block: group[zone.block] | (mine & bits[zone.block]) for zone, mine in standing}
            chosen = [(zone, group[zone.block]) for zone, _ in standing if group[zone.block]]
            if count_members(chosen) >= self._best.num_lacking or name == names[-1]:
                yield chosen
                group = dict.fromkeys(blocks, 0)

    def _consume(self, standing: Sequence[Standing], ranges: Sequence[NumberRange]) -> None:
        """Read members in the order of their blocks until none that is left can be better."""
        left: Sequence[Standing] = standing
        while left:
            num_wanted = max(_FEWEST, 2 * self._best.num_lacking) if ranges else self._best.num_lacking
            num_blocks = self._reader.count_blocks(left, math.inf if self._is_by_reward else num_wanted)
            chosen, left = left[:num_blocks], left[num_blocks:]
            self._best.add(self._reader.read(chosen, ranges, self._best.num_kept))
            self.num_tested += count_members(chosen)
            left = [*takewhile(lambda one: self._best.may_grow_from(one[0]), left)]


def _split(blocks: Sequence[int], members: int) -> dict[int, int]:
    """Return the members by block."""
    packed = members.to_bytes(BITMAP_BYTES * len(blocks))
    return {
        block: int.from_bytes(packed[begin : begin + BITMAP_BYTES])
        for block, begin in zip(blocks, range(0, len(packed), BITMAP_BYTES), strict=True)
    }
