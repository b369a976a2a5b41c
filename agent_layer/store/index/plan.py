"""Which blocks of the index can hold answers, and in which order they are read.

A block's zone bounds the numbers of its members, so the best member that it can hold is known before it is read.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Literal, NamedTuple, TypeAlias

from agent_layer.store.index.filters import NumberRange, bucket_ends, find_bucket
from agent_layer.store.index.index import Position, Zone

_MAX_BUCKETS = 16
"""More than these are no narrow range: then it is quicker to compare the numbers."""
_ALL_REWARDS = NumberRange("reward", -math.inf, math.inf)


Order: TypeAlias = Literal["newest", "oldest", "reward", "policy"]
"""``reward`` and ``policy`` (newest version) put the largest first, the newest first among equals, and show only
trajectories that have one."""


class Ordering(NamedTuple):
    """How an order sorts."""

    column: str
    descending: bool

    def best_bound(self, zone: Zone) -> tuple[float, float]:
        """The best (value, start) that a member of the block can have."""
        end = 1 if self.descending else 0
        return zone.ends(self.column)[end], zone.ends("started_at")[end]

    def worst_bound(self, zone: Zone) -> tuple[float, float]:
        """The worst (value, start) that a member of the block can have."""
        end = 0 if self.descending else 1
        return zone.ends(self.column)[end], zone.ends("started_at")[end]

    def is_before(self, one: tuple[float, ...] | Position, other: tuple[float, ...] | Position) -> bool:
        """Whether one comes before another."""
        return one > other if self.descending else one < other

    def sort(self, positions: Iterable[Position]) -> list[Position]:
        """Put positions in order."""
        return sorted(positions, reverse=self.descending)


_ORDERINGS: dict[str, Ordering] = {
    "newest": Ordering("started_at", descending=True),
    "oldest": Ordering("started_at", descending=False),
    "reward": Ordering("reward", descending=True),
    "policy": Ordering("policy_max", descending=True),
}


def find_ordering(order: str) -> Ordering | None:
    """How an order sorts; None where there is no such order."""
    return _ORDERINGS.get(order)


class RewardTest(NamedTuple):
    """A range of rewards as buckets that occur: those inside, and those that it cuts."""

    wanted: NumberRange | None
    inside: Sequence[int]
    partly: Sequence[int]

    @classmethod
    def of(cls, ranges: Iterable[NumberRange], buckets: Iterable[int]) -> "RewardTest":
        """Sort the buckets that occur; without a range of rewards, none is needed."""
        wanted = next((one for one in ranges if one.column == "reward"), None)
        if wanted is None:
            return cls(None, (), ())
        inside, partly = list[int](), list[int]()
        for bucket in buckets:
            first, last = bucket_ends(bucket)
            if wanted.low <= first and last <= wanted.high:
                inside.append(bucket)
            elif first <= wanted.high and wanted.low <= last:
                partly.append(bucket)
        return cls(wanted, inside, partly)


def bucket_name(bucket: int) -> str:
    """Return the name of the bitmap of a bucket of rewards."""
    return f"bucket={bucket}"


class Turn(NamedTuple):
    """Part of a search: all answers of a turn come before those of the next one."""

    any_of: Sequence[str] | None
    """Bitmaps; a member must be in at least one. None: no such condition."""
    ranges: Sequence[NumberRange]
    """In which the numbers of these members must lie."""


def plan_turns(
    buckets: Sequence[int], ranges: Sequence[NumberRange], ordering: Ordering, after: Position | None = None
) -> list[Turn]:
    """In which buckets of rewards to look, in turns.

    Args:
        buckets: that occur, lowest first.
        ranges: in which numbers must lie.
        ordering: of the answer. By reward, the highest bucket comes first, then ever more at once.
        after: where the answer begins.
    """
    is_by_reward = ordering.column == "reward"
    test = RewardTest.of([*ranges, _ALL_REWARDS] if is_by_reward else ranges, buckets)
    fitting = sorted([*test.inside, *test.partly], reverse=True)
    if test.wanted is None or (len(fitting) > _MAX_BUCKETS and not is_by_reward):
        return [Turn(None, ranges)]
    others, cut = [one for one in ranges if one.column != "reward"], {*test.partly}

    def make_turn(some: Sequence[int]) -> Turn:
        return Turn([*map(bucket_name, some)], ranges if not cut.isdisjoint(some) else others)

    if not is_by_reward:
        return [make_turn(fitting)] if fitting else []
    left = [one for one in fitting if after is None or one <= find_bucket(after.value)]
    turns, size = list[Turn](), 1
    while left:
        turns.append(make_turn(left[:size]))
        left, size = left[size:], 2 * size
    return turns


def plan_blocks(
    zones: Iterable[Zone], ranges: Sequence[NumberRange], ordering: Ordering, after: Position | None = None
) -> list[Zone]:
    """Blocks that can hold answers, best first.

    Args:
        zones: of the blocks in which every requested name occurs.
        ranges: in which numbers must lie.
        ordering: of the answer.
        after: where the answer begins.
    """
    fitting = [
        zone
        for zone in zones
        if zone.has_known(ordering.column)
        and all(zone.overlaps(one) for one in ranges)
        and (after is None or not ordering.is_before(ordering.worst_bound(zone), after[:2]))
    ]
    return sorted(fitting, key=ordering.best_bound, reverse=ordering.descending)


def keep_with_any(
    zones: Iterable[Zone], names: Sequence[str] | None, places: Mapping[str, AbstractSet[int]]
) -> Iterable[Zone]:
    """Blocks in which at least one of the names occurs; None: all of them."""
    if names is None:
        return zones
    blocks = frozenset[int]().union(*(places[name] for name in names))
    return [zone for zone in zones if zone.block in blocks]
