"""Members of blocks that meet conditions: the one way in which pages, counts and summaries find them.

First the bitmaps of names are ANDed, then rewards are looked up in buckets where that is cheaper, then numbers are
compared. Those of a block with few members are picked out by a script of Redis; of many, whole columns come as strings.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.infra import batched
from agent_layer.store.index.blocks import BITMAP_BYTES, Matches, find_common, read_blocks, read_parts
from agent_layer.store.index.filters import Conditions, NumberRange
from agent_layer.store.index.index import BLOCK, Index, set_bits, view_numbers
from agent_layer.store.index.plan import Ordering, Zone, bucket_name, find_buckets, plan_blocks
from agent_layer.store.index.scripts import FETCH_MEMBERS

_MAX_BLOCKS: Final = 64
"""Blocks that are counted together."""
_MAX_PICKED: Final = 512
"""Members that one script picks out, in about a millisecond."""
_DENSE: Final = 32
"""Members of a block from which on whole columns are read."""
FEW_MEMBERS: Final = 256
"""Members whose rewards are rather compared than looked up in buckets."""
_MAX_BUCKETS: Final = 16
"""More than these are no narrow range: then it is quicker to compare the numbers."""
_ORDERING: Final = Ordering("started_at", descending=False)

Standing: TypeAlias = tuple[Zone, int]
"""A block, and those of its members that may meet the conditions."""


class Numbers(NamedTuple):
    """Members of one block, or of several that have few, and numbers of theirs."""

    ordinals: Sequence[int]
    """[num_places]."""
    columns: Mapping[str, Sequence[float]]
    """[num_places] by column; NaN is not known."""
    places: Sequence[int]
    """Places of the members that meet the conditions."""


def find_matches(
    index: Index,
    conditions: Conditions,
    names: Iterable[str] = (),
    columns: Sequence[str] = (),
    only: Container[int] | None = None,
) -> Iterator[Matches]:
    """Yield all members that meet the conditions, some blocks at a time.

    Args:
        index: of the namespace.
        conditions: on members.
        names: bitmaps that the caller needs besides.
        columns: that the caller needs besides.
        only: blocks to look at; None: all.
    """
    scan = Scan(index, conditions, names)
    zones = plan_blocks(scan.scope, conditions.ranges, _ORDERING)
    for page in batched((zone for zone in zones if only is None or zone.block in only), _MAX_BLOCKS):
        found, standing = scan.find_named(page, columns)
        if conditions.ranges:
            kept = scan.keep_in_ranges(standing, conditions.ranges)
            found = found._replace(members=found.join(kept))
        yield found


class Scan:
    """One look through the blocks of an index."""

    def __init__(self, index: Index, conditions: Conditions, besides: Iterable[str] = ()) -> None:
        self._index, self.conditions = index, conditions
        self._others = (*conditions.without, *(one.rest for one in conditions.bounded), *besides)
        self.scope = index.read_map(conditions, self._others)
        self._ids = dict[int, str]()

    def find_named(self, zones: Sequence[Zone], columns: Sequence[str] = ()) -> tuple[Matches, list[Standing]]:
        """Return blocks with the members that have all names, and none that they must not have."""
        blocks, places = [zone.block for zone in zones], self.scope.places
        others = [name for name in self._others if not places[name].isdisjoint(blocks)]
        found = read_blocks(self._index, blocks, [*self.conditions.names, *others], columns)
        found = found._replace(members=find_common(self._index, found, self.conditions))
        by_block = found.split(found.members)
        return found, [(zone, by_block[zone.block]) for zone in zones if zone.block in by_block]

    def split_by_bucket(self, standing: Sequence[Standing], buckets: Sequence[int]) -> Iterator[list[Standing]]:
        """Yield, for each bucket of rewards, the members that lie in it."""
        found = read_blocks(self._index, [zone.block for zone, _ in standing], [*map(bucket_name, buckets)], ())
        for bitmap in found.bitmaps.values():
            bits = found.split(bitmap)
            yield [(zone, both) for zone, mine in standing if (both := mine & bits.get(zone.block, 0))]

    def apply_buckets(
        self, standing: Sequence[Standing], ranges: Sequence[NumberRange]
    ) -> tuple[Sequence[Standing], Sequence[NumberRange]]:
        """Leave out what buckets of rewards rule out, where these are few; return the ranges left to be compared."""
        wanted = next((one for one in ranges if one.column == "reward"), None)
        buckets, are_inside = find_buckets(wanted, self.scope.buckets) if wanted else ([], False)
        if wanted is None or len(buckets) > _MAX_BUCKETS:
            return standing, ranges
        found = read_blocks(self._index, [zone.block for zone, _ in standing], [*map(bucket_name, buckets)], ())
        members = 0
        for bitmap in found.bitmaps.values():
            members |= bitmap
        bits = found.split(members)
        left = [(zone, both) for zone, mine in standing if (both := mine & bits.get(zone.block, 0))]
        return left, [one for one in ranges if one is not wanted or not are_inside]

    def keep_in_ranges(self, standing: Sequence[Standing], ranges: Sequence[NumberRange]) -> dict[int, int]:
        """Return by block the members whose numbers are in all ranges."""
        kept = dict[int, int]()
        for is_inside in (True, False):  # most blocks lie in a range of starts as a whole
            some = [one for one in standing if one[0].is_inside is is_inside]
            left = [one for one in ranges if not is_inside or one.column != "started_at"]
            if count_members(some) > FEW_MEMBERS:
                some, left = self.apply_buckets(some, left)
            if not left:
                kept |= {zone.block: bits for zone, bits in some}
                continue
            for ordinals, _, places in self.find_in_ranges(some, left):
                if isinstance(ordinals, range):
                    kept[ordinals.start // BLOCK] = _join_places(places)
                else:
                    for block, at in (divmod(ordinals[place], BLOCK) for place in places):
                        kept[block] = kept.get(block, 0) | 1 << BLOCK - 1 - at
        return kept

    def find_in_ranges(
        self, standing: Sequence[Standing], ranges: Sequence[NumberRange], columns: Sequence[str] = ()
    ) -> Iterator[Numbers]:
        """Yield the members whose numbers are in all ranges, with those numbers and columns that the caller needs."""
        wanted = [*dict.fromkeys((*columns, *(one.column for one in ranges)))]
        dense = [one for one in standing if one[1].bit_count() >= _DENSE]
        sparse = [one for one in standing if one[1].bit_count() < _DENSE]
        for found in chain(self._read_columns(dense, wanted), self._pick(sparse, wanted)):
            places = found.places
            for column, low, high in ranges:
                values = found.columns[column]
                places = [place for place in places if low <= values[place] <= high]
            yield found._replace(places=places)

    def find_ids(self, ordinals: Sequence[int]) -> dict[int, str]:
        """Return trajectories by ordinal; one that is gone is left out."""
        unknown = [ordinal for ordinal in ordinals if ordinal not in self._ids]
        found = self._ids | (self._index.find_ids(unknown) if unknown else {})
        return {ordinal: found[ordinal] for ordinal in ordinals if found.get(ordinal)}

    def _read_columns(self, standing: Sequence[Standing], columns: Sequence[str]) -> Iterator[Numbers]:
        stored = read_parts(self._index, [zone.block for zone, _ in standing], (), columns)
        for at, (zone, bits) in enumerate(standing):
            ordinals = range(zone.block * BLOCK, (zone.block + 1) * BLOCK)
            yield Numbers(
                ordinals, {column: view_numbers(stored[column][at]) for column in columns}, _list_places(bits)
            )

    def _pick(self, standing: Sequence[Standing], columns: Sequence[str]) -> Iterator[Numbers]:
        """Let Redis pick out the numbers and ids of members."""
        for page in _slice(standing, _MAX_PICKED):
            places = [(zone.block, _list_places(bits)) for zone, bits in page]
            packed = msgspec.msgpack.encode([columns, [*chain.from_iterable(places)]])
            fetch = FETCH_MEMBERS.load(self._index.redis)
            stored, *ids = cast("list[bytes]", fetch(keys=[self._index.keys.name()], args=[packed]))
            ordinals = [block * BLOCK + place for block, here in places for place in here]
            self._ids.update(zip(ordinals, map(bytes.decode, ids), strict=True))
            numbers = view_numbers(stored)
            by_column = {column: [*numbers[at :: len(columns)]] for at, column in enumerate(columns)}
            yield Numbers(ordinals, by_column, range(len(ordinals)))


def count_members(standing: Iterable[Standing]) -> int:
    """Count the members of all."""
    return sum(bits.bit_count() for _, bits in standing)


def _list_places(bits: int) -> list[int]:
    """Return the places of the members of a block."""
    if bits.bit_count() < _DENSE:
        places = list[int]()
        while bits:
            places.append(BLOCK - bits.bit_length())
            bits ^= 1 << bits.bit_length() - 1
        return places
    return set_bits(bits.to_bytes(BITMAP_BYTES))


def _slice(standing: Sequence[Standing], num_members: int) -> Iterator[Sequence[Standing]]:
    """Yield slices that each end with the block in which they reach this number of members."""
    begin, sums = 0, [*accumulate(bits.bit_count() for _, bits in standing)]
    while begin < len(standing):
        end = bisect_left(sums, (sums[begin - 1] if begin else 0) + num_members) + 1
        yield standing[begin:end]
        begin = end


def _join_places(places: Iterable[int]) -> int:  # kept: the inverse of _list_places
    digits = bytearray(b"0" * BLOCK)
    for place in places:
        digits[place] = ord("1")
    return int(digits, 2)
