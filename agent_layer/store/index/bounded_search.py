"""The search of an index: branch and bound over its blocks.

Of the blocks in which every requested name occurs, the plan skips one if its zone lies outside the ranges, or if
earlier pages covered all that it can hold. The others are read in the order of their best members: first the bitmaps,
many blocks at a time, then the numbers of the members that have all names.

Proof that the first ``limit`` answers are found: once there are ``limit`` of them, a block is left out only if its best
member comes after the last of these, and so do all blocks behind it in the plan. By reward, the members of the highest
buckets are looked at first, and what is in a lower bucket comes later.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, takewhile
from math import ceil, inf
from typing import Final, NamedTuple, TypeAlias

import msgspec

from agent_layer.infra import batched
from agent_layer.store.index.filters import Conditions, NumberRange, bucket_ends, find_bucket
from agent_layer.store.index.index import Index, Position
from agent_layer.store.index.members import FEW_MEMBERS, Numbers, Scan, Standing, count_members
from agent_layer.store.index.plan import Ordering, Zone, find_buckets, plan_blocks

_FIRST_BLOCKS: Final = 16
"""Blocks whose bitmaps are read at first; then ever more."""
_TIMES_SPARSE: Final = 4
"""Factor for these, where a name is so rare that some block has none of it."""
_MAX_BLOCKS: Final = 512
_FIRST_BUCKETS: Final = 4
"""Buckets that are read at first, by reward; then ever more."""
_SPARE: Final = 8
"""Members whose numbers are read besides those that may suffice: another round takes longer."""
_MAX_TESTED: Final = 2_048
"""Members whose numbers are compared before what is left is looked at again."""

Entry: TypeAlias = tuple[float, float, int]
"""Value, start and ordinal of a member."""


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
        scan, best = Scan(index, conditions), _Best(ordering, limit, after, gone)
        zones = plan_blocks(scan.scope, conditions.ranges, ordering, after)
        walk = _Walk(scan, conditions.ranges, ordering, best)
        if ordering.column == "reward":
            walk.search_by_reward(zones, after)
        else:
            walk.search_by_block(zones)
        ids = scan.find_ids([ordinal for _, _, ordinal in best.entries])
        if not (missing := {ordinal for _, _, ordinal in best.entries} - ids.keys()):
            break
        gone |= missing  # deleted meanwhile: others take their place
    matches = [Match(Position(value, start, ids[ordinal]), ordinal) for value, start, ordinal in best.entries]
    behind = [one for one in matches if after is None or ordering.is_before(after, one.position)]
    return Search(
        matches=sorted(behind, reverse=ordering.descending)[:limit],
        num_blocks=scan.scope.num_blocks,
        num_planned=len(zones),
        num_read=walk.num_read,
        num_tested=walk.num_tested,
    )


class _Best:
    """The best members so far, and all that tie with the last of them or with where the answer begins."""

    def __init__(self, ordering: Ordering, limit: int, after: Position | None, gone: set[int]) -> None:
        self._ordering, self._limit, self._gone = ordering, limit, gone
        self.begin = None if after is None else after[:2]
        self._level, self._best = set[Entry](), list[Entry]()
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
    def num_lacking(self) -> int:
        """Members that are still wanted, at least 1."""
        return max(1, self._limit - len(self._best))

    def may_grow_from(self, value: float) -> bool:
        """Whether a member of this value may be better than the last one that is wanted."""
        return self._bound is None or not self._ordering.is_before(self._bound[:1], (value,))

    def cut(self, zones: list[Zone]) -> list[Zone]:
        """Leave out the blocks of a plan whose members all come behind the last one that is wanted."""
        if (bound := self._bound) is None:
            return zones
        return [*takewhile(lambda zone: not self._ordering.is_before(bound, zone.best), zones)]

    def cut_standing(self, standing: list[Standing]) -> list[Standing]:
        """The same for blocks with their members."""
        return standing[: len(self.cut([zone for zone, _ in standing]))]

    def select(self, found: Numbers) -> list[Entry]:
        """Return the members without most of those that cannot be among the best."""
        values, starts = found.columns[self._ordering.column], found.columns["started_at"]
        places, begin = found.places, self.begin
        num_best = self._limit + len(self._gone)
        if begin is not None and len(places) > num_best:  # what has the same value may stand before the begin
            num_best += sum(values[place] == begin[0] for place in places)
        if len(places) > num_best:
            last = sorted([values[place] for place in places], reverse=self._ordering.descending)[num_best - 1]
            low, high = (last, inf) if self._ordering.descending else (-inf, last)
            places = [place for place in places if low <= values[place] <= high]
        return [(values[place], starts[place], found.ordinals[place]) for place in places]

    def add(self, fresh: Sequence[Entry]) -> None:
        """Add members, and drop those behind the last one that is wanted."""
        is_before, begin, bound = self._ordering.is_before, self.begin, self._bound
        if self._gone:
            fresh = [one for one in fresh if one[2] not in self._gone]
        if begin is not None:
            self._level.update(one for one in fresh if one[:2] == begin)
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

    def __init__(self, scan: Scan, ranges: Sequence[NumberRange], ordering: Ordering, best: _Best) -> None:
        self._scan, self._ranges, self._best = scan, ranges, best
        self._columns = [ordering.column, "started_at"]
        begin = (inf if ordering.descending else -inf) if best.begin is None else best.begin[0]
        self._behind = NumberRange(ordering.column, *((-inf, begin) if ordering.descending else (begin, inf)))
        self._named = dict[int, int]()
        self.num_read = self.num_tested = 0

    def search_by_block(self, zones: list[Zone]) -> None:
        """Look through blocks in the order of their best members."""
        is_sparse = len(self._scan.scope.blocks) < self._scan.scope.num_blocks
        size = _FIRST_BLOCKS * (_TIMES_SPARSE if is_sparse else len(self._scan.conditions.names))
        left, pending = zones, list[Standing]()
        num_passed, num_seen, num_rounds = 1, 2 if self._ranges else 1, 0
        while left or pending:
            num_wanted = min(_MAX_TESTED, ceil(self._best.num_lacking * num_seen / num_passed) + _SPARE)
            while left and count_members(pending) < num_wanted:
                pending += self._find_named(left[:size])
                left, size = left[size:], min(4 * size, _MAX_BLOCKS)
            if not pending:
                return
            sums = [*accumulate(bits.bit_count() for _, bits in pending)]
            num_chosen = max(num_rounds, bisect_left(sums, num_wanted)) + 1
            chosen, ranges = pending[:num_chosen], self._ranges
            num_seen += count_members(chosen)
            if num_wanted > FEW_MEMBERS:
                chosen, ranges = self._scan.apply_buckets(chosen, ranges)
            num_passed += self._consume(chosen, ranges)
            num_rounds += 1
            left, pending = self._best.cut(left), self._best.cut_standing(pending[num_chosen:])

    def search_by_reward(self, zones: list[Zone], after: Position | None) -> None:
        """Look through buckets, the highest first, in all blocks that reach them."""
        wanted = next((one for one in self._ranges if one.column == "reward"), NumberRange("reward", -inf, inf))
        buckets = sorted(find_buckets(wanted, self._scan.scope.buckets)[0], reverse=True)
        buckets = [one for one in buckets if after is None or one <= find_bucket(after.value)]
        num_buckets, num_first = _FIRST_BUCKETS, _FIRST_BLOCKS * _TIMES_SPARSE
        while buckets and not self._best.is_full:
            if num_buckets > _FIRST_BUCKETS or len(zones) <= num_first:
                standing = self._find_named(zones)
                if count_members(standing) <= FEW_MEMBERS:
                    self._consume(standing, self._ranges)
                    return
            group, buckets, num_buckets = buckets[:num_buckets], buckets[num_buckets:], 2 * num_buckets
            left, size = [zone for zone in zones if zone.best[0] >= bucket_ends(group[-1])[0]], num_first
            while left:
                self._consume_buckets(self._find_named(left[:size]), group)
                left, size = self._best.cut(left[size:]), min(4 * size, _MAX_BLOCKS)

    def _consume_buckets(self, standing: Sequence[Standing], buckets: Sequence[int]) -> None:
        """Add members of the highest buckets, as many buckets at a time as may fill the answer."""
        group = list[Standing]()
        reachable = [bucket for bucket in buckets if self._best.may_grow_from(bucket_ends(bucket)[1])]
        for bucket, those in zip(reachable, self._scan.split_by_bucket(standing, reachable), strict=True):
            if not self._best.may_grow_from(bucket_ends(bucket)[1]):
                return
            group += those
            if count_members(group) >= self._best.num_lacking or bucket == reachable[-1]:
                self._consume(group, self._ranges)
                group = []

    def _find_named(self, zones: Sequence[Zone]) -> list[Standing]:
        """Return the members that have all names; their bitmaps are read once."""
        for page in batched((zone for zone in zones if zone.block not in self._named), _MAX_BLOCKS):
            self._named |= dict.fromkeys((zone.block for zone in page), 0)
            self._named |= {zone.block: bits for zone, bits in self._scan.find_named(page)[1]}
        self.num_read = len(self._named)
        return [(zone, bits) for zone in zones if (bits := self._named[zone.block])]

    def _consume(self, standing: Sequence[Standing], ranges: Sequence[NumberRange]) -> int:
        """Add the members that are in all ranges; return their number."""
        entries, num_passed = list[Entry](), 0
        tested = [*ranges, self._behind] if self._best.begin is None else [self._behind, *ranges]
        for found in self._scan.find_in_ranges(standing, tested, self._columns):
            entries += self._best.select(found)
            num_passed += len(found.places)
        self._best.add(entries)
        self.num_tested += count_members(standing)
        return num_passed
