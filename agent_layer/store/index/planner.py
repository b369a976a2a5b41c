"""The plan of a search: which blocks can hold answers, and in which order to scan them. Pure.

Of the blocks in which every requested name occurs, the plan skips one if the bounds of its zone are outside the ranges,
or if earlier pages covered all that it can hold. The others come in the order of the best answer that they can hold, so
a search for the first few ends as soon as no block left can hold a better one.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

from agent_layer.store.index.filters import NumberRange, find_bucket
from agent_layer.store.index.index import Position, Zone

_MAX_BUCKETS = 16
"""More than these are no narrow range: then it is quicker to compare the numbers."""


Order: TypeAlias = Literal["newest", "oldest", "reward", "policy"]
"""``reward`` and ``policy`` (newest version) put the largest first, the newest first among equals, and show only
trajectories that have one."""


class Ordering(NamedTuple):
    """How an order sorts."""

    column: str
    descending: bool

    def find_best(self, zone: Zone) -> tuple[float, float]:
        """The best (value, start) that a member of the block can have."""
        end = 1 if self.descending else 0
        return zone.ends[self.column][end], zone.ends["started_at"][end]

    def find_worst(self, zone: Zone) -> tuple[float, float]:
        """The worst (value, start) that a member of the block can have."""
        end = 0 if self.descending else 1
        return zone.ends[self.column][end], zone.ends["started_at"][end]

    def is_before(self, one: tuple[float, float] | Position, other: tuple[float, float] | Position) -> bool:
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
        if all(_meets(zone, one) for one in ranges)
        and _has_ends(zone, ordering.column)
        and (after is None or not ordering.is_before(ordering.find_worst(zone), after[:2]))
    ]
    return sorted(fitting, key=ordering.find_best, reverse=ordering.descending)


def choose_buckets(
    buckets: Sequence[int], ranges: Sequence[NumberRange], ordering: Ordering, after: Position | None = None
) -> list[list[int] | None]:
    """In which buckets of rewards to look, in turns whose answers follow one another; None: whatever the bucket.

    Args:
        buckets: that occur, lowest first.
        ranges: in which numbers must lie.
        ordering: of the answer. By reward, buckets are taken one by one, the highest first.
        after: where the answer begins.
    """
    wanted = next((one for one in ranges if one.column == "reward"), None)
    if wanted is None and ordering.column != "reward":
        return [None]
    low, high = (wanted.low, wanted.high) if wanted else (-math.inf, math.inf)
    fitting = [one for one in buckets if _bucket_end(low) <= one <= _bucket_end(high)]
    if ordering.column == "reward":
        return [[one] for one in reversed(fitting) if after is None or one <= find_bucket(after.value)]
    if len(fitting) > _MAX_BUCKETS:
        return [None]
    return [fitting] if fitting else []


def still_needed(zones: Sequence[Zone], ordering: Ordering, bound: Position | None) -> list[Zone]:
    """Those of planned blocks that can hold something better than the last one that is still wanted."""
    if bound is None:
        return list(zones)
    return list(takewhile(lambda zone: not ordering.is_before(bound[:2], ordering.find_best(zone)), zones))


def _bucket_end(end: float) -> float:
    return end if math.isinf(end) else find_bucket(end)


def _meets(zone: Zone, wanted: NumberRange) -> bool:
    low, high = zone.ends[wanted.column]
    return low <= wanted.high and high >= wanted.low


def _has_ends(zone: Zone, column: str) -> bool:
    low, high = zone.ends[column]
    return low <= high
