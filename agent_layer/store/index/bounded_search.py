"""The search of an index: branch and bound over its blocks.

A block's zone bounds the numbers of its members, so the best member that it can hold is known before it is read. Of the
blocks in which every requested name occurs, the plan skips one if its zone lies outside the ranges, or if earlier pages
covered all that it can hold. The others are scanned in the order of their best members.

Proof that the first ``limit`` answers are found: once there are ``limit`` of them, a block is left out only if its best
member comes after the last of these, and so do all blocks behind it in the plan. By reward, the buckets are searched
one by one, the highest first, and what is in a lower one comes later.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.store.index.filters import Conditions, NumberRange, find_bucket
from agent_layer.store.index.index import Index, Position, Zone, scan_request

_MAX_BLOCKS = 32
"""Blocks per call: one at first, because the newest often suffices; at most this many, which blocks Redis shortly."""

_MAX_TESTED = 8_192
"""Members that one call should test, which takes Redis 4 to 8 ms; calls take fewer blocks where they are dense."""

_MAX_BUCKETS = 16
"""More than these are no narrow range: then it is quicker to compare the numbers."""


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
        return zone.ends[self.column][end], zone.ends["started_at"][end]

    def worst_bound(self, zone: Zone) -> tuple[float, float]:
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


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a search."""

    positions: list[Position]
    """[at most limit], in order."""
    num_blocks: int
    """Blocks of the whole index."""
    num_planned: int
    """Blocks that could hold answers; by reward, each is counted for each bucket that it is looked through for."""
    num_read: int
    """Blocks that were scanned before the answer was complete."""
    num_tested: int
    """Members of these that have all requested names, and whose numbers were compared."""


def search(
    index: Index, conditions: Conditions, ordering: Ordering, limit: int, after: Position | None = None
) -> Search:
    """Scan blocks, best first, until none that is left can hold a better answer."""
    scope = index.read_map(conditions.names)
    best, bound = list[Position](), None
    num_planned = num_read = num_tested = 0
    for buckets in choose_buckets(scope.buckets, conditions.ranges, ordering, after):
        any_of = None if buckets is None else [f"bucket={bucket}" for bucket in buckets]
        request = scan_request(conditions, (), any_of)
        left, num_at_once = plan_blocks(index.zones_with_any(scope, any_of), conditions.ranges, ordering, after), 1
        num_planned += len(left)
        while left:
            blocks, left = left[:num_at_once], left[num_at_once:]
            fresh = index.search_blocks(
                msgspec.structs.replace(
                    request,
                    blocks=[zone.block for zone in blocks],
                    column=ordering.column,
                    descending=ordering.descending,
                    limit=limit,
                    after=after and after[:2],
                    bound=bound,
                )
            )
            behind = [one for one in fresh.positions if after is None or ordering.is_before(after, one)]
            best = ordering.sort({*best, *behind})[:limit]
            num_read, num_tested = num_read + len(blocks), num_tested + fresh.num_tested
            if 2 * fresh.num_tested <= _MAX_TESTED:
                num_at_once = min(2 * num_at_once, _MAX_BLOCKS)
            elif fresh.num_tested > _MAX_TESTED:
                num_at_once = max(1, num_at_once // 2)
            if len(best) == limit:
                bound = best[-1][:2]
                left = [
                    *takewhile(lambda zone, last=bound: not ordering.is_before(last, ordering.best_bound(zone)), left)
                ]
        if ordering.column == "reward" and bound is not None:
            break  # what is in lower buckets comes later
    return Search(
        positions=best,
        num_blocks=scope.num_blocks,
        num_planned=num_planned,
        num_read=num_read,
        num_tested=num_tested,
    )


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
        if all(zone.ends[one.column][0] <= one.high and zone.ends[one.column][1] >= one.low for one in ranges)
        and zone.ends[ordering.column][0] <= zone.ends[ordering.column][1]  # else no member has the number
        and (after is None or not ordering.is_before(ordering.worst_bound(zone), after[:2]))
    ]
    return sorted(fitting, key=ordering.best_bound, reverse=ordering.descending)


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


def _bucket_end(end: float) -> float:
    return end if math.isinf(end) else find_bucket(end)
