"""Which blocks and buckets of rewards can hold answers, and in which order blocks are read.

A block's zone bounds the numbers of its members, so the best member that it can hold is known before it is read.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from agent_layer.store.index.filters import NumberRange, bucket_ends
from agent_layer.store.index.index import BlockMap, Position

Order: TypeAlias = Literal["newest", "oldest", "reward", "policy"]
"""``reward`` and ``policy`` (newest version) put the largest first, the newest first among equals, and show only
trajectories that have one."""


class Ordering(NamedTuple):
    """How an order sorts."""

    column: str
    descending: bool

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


class Zone(NamedTuple):
    """A block that can hold answers."""

    best: tuple[float, float]
    """Best (value, start) that a member can have."""
    block: int
    is_inside: bool
    """Whether all members started in the range of starts."""


def plan_blocks(
    scope: BlockMap, ranges: Sequence[NumberRange], ordering: Ordering, after: Position | None = None
) -> list[Zone]:
    """Blocks that can hold answers, best first.

    Args:
        scope: the blocks in which every requested name occurs.
        ranges: in which numbers must lie.
        ordering: of the answer.
        after: where the answer begins.
    """
    (lows, highs), (first, last) = scope.ends(ordering.column), scope.ends("started_at")
    fitting = [at for at in range(len(scope.blocks)) if lows[at] <= highs[at]]
    for one in ranges:
        least, greatest = scope.ends(one.column)
        fitting = [at for at in fitting if least[at] <= one.high and greatest[at] >= one.low]
    best, worst = [*zip(highs, last, strict=True)], [*zip(lows, first, strict=True)]
    if not ordering.descending:
        best, worst = worst, best
    if after is not None:
        fitting = [at for at in fitting if not ordering.is_before(worst[at], after[:2])]
    starts = [one for one in ranges if one.column == "started_at"]
    zones = [
        Zone(
            best[at],
            scope.blocks[at],
            not starts or all(one.low <= first[at] <= last[at] <= one.high for one in starts),
        )
        for at in fitting
    ]
    return sorted(zones, reverse=ordering.descending)


def find_buckets(wanted: NumberRange, buckets: Iterable[int]) -> tuple[list[int], bool]:
    """Return which of the buckets overlap a range of rewards, and whether all of these lie inside it."""
    fitting = [(bucket, *bucket_ends(bucket)) for bucket in buckets]
    fitting = [one for one in fitting if one[1] <= wanted.high and wanted.low <= one[2]]
    return [bucket for bucket, _, _ in fitting], all(
        wanted.low <= first and last <= wanted.high for _, first, last in fitting
    )


def bucket_name(bucket: int) -> str:
    """Return the name of the bitmap of a bucket of rewards."""
    return f"bucket={bucket}"
