"""Numbers and ids of members of blocks, read in the way that is cheaper for their number.

Of a few, a script of Redis picks them out; of many, whole columns come as strings.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import compress
from math import inf
from typing import Final, TypeAlias, cast

import msgspec

from agent_layer.store.index.blocks import AS_FLAGS, read_parts
from agent_layer.store.index.filters import NumberRange
from agent_layer.store.index.index import BLOCK, Index, Zone
from agent_layer.store.index.plan import Ordering
from agent_layer.store.index.scripts import FETCH_MEMBERS

_MAX_PICKED: Final = 512
"""Members that one script picks out, in about a millisecond."""
_MAX_COLUMNS_OF: Final = 4
"""Blocks whose columns are read together."""
_DENSE: Final = 96
"""Members of a block, in the mean, from which on whole columns are read."""
_COLUMN: Final = struct.Struct(f"<{BLOCK}d")

Entry: TypeAlias = tuple[float, float, int]
"""Value, start and ordinal of a member."""
Standing: TypeAlias = tuple[Zone, int]
"""A block, and its members that have all names."""


def count_members(standing: Sequence[Standing]) -> int:
    """Count the members of all."""
    return sum(bits.bit_count() for _, bits in standing)


class MemberReader:
    """Reads what an order compares."""

    def __init__(self, index: Index, ordering: Ordering, begin: tuple[float, float] | None) -> None:
        self._index, self._ordering, self._begin = index, ordering, begin
        self._of_known = NumberRange(ordering.column, -inf, inf)
        self._fetch = FETCH_MEMBERS.load(index.redis)
        self._ids = dict[int, str]()

    def find_ids(self, ordinals: Sequence[int]) -> dict[int, str]:
        """Return trajectories by ordinal; one that is gone is left out."""
        unknown = [ordinal for ordinal in ordinals if ordinal not in self._ids]
        found = self._ids | (self._index.find_ids(unknown) if unknown else {})
        return {ordinal: found[ordinal] for ordinal in ordinals if found.get(ordinal)}

    def count_blocks(self, standing: Sequence[Standing], num_wanted: float) -> int:
        """Return how many of the blocks to read next: as many as have enough members, if all of these are in range."""
        num_members = 0
        for number, (_, bits) in enumerate(standing, start=1):
            num_members += bits.bit_count()
            is_dense = num_members >= _DENSE * number
            if num_members >= num_wanted or (number >= _MAX_COLUMNS_OF and is_dense) or num_members > _MAX_PICKED:
                return number
        return len(standing)

    def read(self, chosen: Sequence[Standing], ranges: Sequence[NumberRange], num_best: int) -> list[Entry]:
        """Return members whose numbers are known, and in range.

        Args:
            chosen: blocks with members.
            ranges: of their numbers.
            num_best: number of the best behind the begin that suffice, of a block with many members.
        """
        columns = list(dict.fromkeys((self._ordering.column, "started_at", *(one.column for one in ranges))))
        if count_members(chosen) < _DENSE * len(chosen):
            return [*self._pick(chosen, ranges, columns)]
        stored = read_parts(self._index, [zone.block for zone, _ in chosen], (), columns)
        entries = list[Entry]()
        for at, (zone, bits) in enumerate(chosen):
            numbers = {column: _COLUMN.unpack(parts[at]) for column, parts in stored.items()}
            places = [*compress(range(BLOCK), f"{bits:0{BLOCK}b}".encode().translate(AS_FLAGS))]
            for one in (*ranges, self._of_known):
                values, low, high = numbers[one.column], one.low, one.high
                places = [place for place in places if low <= values[place] <= high]
            values, starts, first = numbers[self._ordering.column], numbers["started_at"], zone.block * BLOCK
            entries += [
                (values[place], starts[place], first + place)
                for place in self._keep_best(places, values, starts, num_best)
            ]
        return entries

    def _keep_best(
        self, places: list[int], values: Sequence[float], starts: Sequence[float], num_best: int
    ) -> list[int]:
        """Drop those that cannot be among the best of their block."""
        level = list[int]()
        if self._begin is not None:
            begin, is_before = self._begin, self._ordering.is_before
            level = [place for place in places if (values[place], starts[place]) == begin]
            places = [place for place in places if is_before(begin, (values[place], starts[place]))]
        if len(places) <= num_best:
            return [*level, *places]
        in_order = sorted([values[place] for place in places])
        low, high = (in_order[-num_best], inf) if self._ordering.descending else (-inf, in_order[num_best - 1])
        return [*level, *(place for place in places if low <= values[place] <= high)]

    def _pick(self, chosen: Sequence[Standing], ranges: Sequence[NumberRange], columns: list[str]) -> Iterator[Entry]:
        """Let Redis pick out the numbers and ids of members."""
        wanted, ordinals = list[object](), list[int]()
        for zone, bits in chosen:
            places = [found.start() for found in re.finditer("1", f"{bits:0{BLOCK}b}")]
            wanted += [zone.block, places]
            ordinals += [zone.block * BLOCK + place for place in places]
        packed = msgspec.msgpack.encode([columns, wanted])
        numbers, *ids = cast("list[bytes]", self._fetch(keys=[self._index.keys.name()], args=[packed]))
        self._ids.update(zip(ordinals, map(bytes.decode, ids), strict=True))
        by, start = columns.index(self._ordering.column), columns.index("started_at")
        tests = [(columns.index(one.column), one.low, one.high) for one in (*ranges, self._of_known)]
        members = struct.iter_unpack(f"<{len(columns)}d", numbers)
        for ordinal, values in zip(ordinals, members, strict=True):
            if all(low <= values[at] <= high for at, low, high in tests):
                yield values[by], values[start], ordinal
