"""Which blocks and buckets of rewards can hold answers, and in which order blocks are read.

A block's zone bounds the numbers of its members, so the best member that it can hold is known before it is read.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from agent_layer.store.index.filters import NumberRange, bucket_ends
from agent_layer.store.index.index import Position, Zone

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
