"""Members of blocks that meet conditions, found in Python: bitmaps become integers, columns numbers.

Redis only hands out strings, some thousand at a time: a script that counts keeps all others waiting, and takes far
longer than operations on integers.
"""

import re
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import Final, NamedTuple, cast

from agent_layer.infra import batched
from agent_layer.store.index.filters import BoundedValue, Conditions, NumberRange
from agent_layer.store.index.index import BLOCK, Index, Zone
from agent_layer.store.index.plan import Ordering, RewardTest, bucket_name, plan_blocks

BITMAP_BYTES: Final = BLOCK // 8
_MAX_KEYS: Final = 2048
"""Bitmaps per command: Redis copies these in about a millisecond."""
_MAX_COLUMNS: Final = 32
"""Columns per command, each of 16 KB."""
_MAX_BLOCKS: Final = 64
"""Blocks whose members are looked at together."""
_ORDERING: Final = Ordering("started_at", descending=False)
_UNKNOWN: Final = struct.pack("<d", float("nan")) * BLOCK
AS_FLAGS: Final = bytes.maketrans(b"0", b"\0")
_AS_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


class Matches(NamedTuple):
    """Some blocks side by side. In an integer, the highest bit stands for the first member of the first block."""

    members: int
    """Those that meet the conditions."""
    blocks: Sequence[int]
    """Their numbers."""
    bitmaps: Mapping[str, int]
    """Bitmaps by name; one that none of these blocks has is left out."""
    columns: Mapping[str, Sequence[float]]
    """[num_places]; NaN is not known."""

    @property
    def num_places(self) -> int:
        """Bits of an integer."""
        return BLOCK * len(self.blocks)

    def has_member(self, ordinal: int) -> bool:
        """Whether the member of one of these blocks meets the conditions."""
        block, at = divmod(ordinal, BLOCK)
        place = BLOCK * self.blocks.index(block) + at
        return bool(self.members >> self.num_places - 1 - place & 1)

    def numbers(self, column: str, members: int) -> Iterator[float]:
        """Yield the numbers of some members, in their order."""
        return compress(self.columns[column], f"{members:0{self.num_places}b}".encode().translate(AS_FLAGS))


def find_matches(
    index: Index,
    conditions: Conditions,
    names: Iterable[str] = (),
    columns: Iterable[str] = (),
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
    others = *conditions.without, *(one.rest for one in conditions.bounded), *names
    scope = index.read_map(conditions, others)
    test = RewardTest.of(conditions.ranges, scope.buckets)
    ranges = [one for one in conditions.ranges if one.column != "reward"]
    inside, partly = [*map(bucket_name, test.inside)], [*map(bucket_name, test.partly)]
    rewards = *inside, *partly
    wanted = [*dict.fromkeys((*conditions.names, *others, *rewards))]
    places = scope.places | index.blocks_with(rewards)
    zones = [
        zone for zone in plan_blocks(scope.zones, conditions.ranges, _ORDERING) if only is None or zone.block in only
    ]
    for page in batched(zones, _MAX_BLOCKS):
        blocks = [zone.block for zone in page]
        here = [name for name in wanted if name in conditions.names or not places[name].isdisjoint(blocks)]
        tested = [one for one in ranges if not all(_is_sure(zone, one) for zone in page)]
        needed = {*columns, *(one.column for one in tested), *(["reward"] if {*partly} & {*here} else [])}
        found = read_blocks(index, blocks, here, sorted(needed))
        members = find_common(index, found, conditions)
        if test.wanted is not None:
            cut = join_bitmaps(found.bitmaps, partly) & members
            members &= join_bitmaps(found.bitmaps, inside) | (cut & _in_range(found, test.wanted) if cut else 0)
        for one in tested:
            members &= _in_range(found, one) if members else 0
        yield found._replace(members=members)


def _is_sure(zone: Zone, wanted: NumberRange) -> bool:
    """Whether every member of the block is in the range. Each has a start; other numbers may be unknown."""
    low, high = zone.ends(wanted.column)
    return wanted.column == "started_at" and wanted.low <= low and high <= wanted.high


def find_common(index: Index, found: Matches, conditions: Conditions) -> int:
    """Return the members that have all names, and none that they must not have, whatever their numbers."""
    members, bounded = (1 << found.num_places) - 1, {one.name for one in conditions.bounded}
    for name in (one for one in conditions.names if one not in bounded):
        members &= found.bitmaps[name]
    for name in conditions.without:
        members &= ~found.bitmaps.get(name, 0)
    for one in conditions.bounded:
        listed = members & found.bitmaps.get(one.name, 0)
        others = members & found.bitmaps.get(one.rest, 0) & ~listed
        members = listed | (_find_in_rows(index, found, others, one) if others else 0)
    return members


def _find_in_rows(index: Index, found: Matches, members: int, wanted: BoundedValue) -> int:
    """Return those of the members whose rows have the value."""
    passing, last = 0, found.num_places - 1
    for page in batched((hit.start() for hit in re.finditer("1", f"{members:0{found.num_places}b}")), _MAX_KEYS):
        ordinals = {BLOCK * found.blocks[place // BLOCK] + place % BLOCK: place for place in page}
        for ordinal, values in index.read_lists(ordinals, wanted.field):
            if wanted.value in values:
                passing |= 1 << last - ordinals[ordinal]
    return passing


def join_bitmaps(bitmaps: Mapping[str, int], names: Iterable[str]) -> int:
    """Return the members of at least one of the bitmaps."""
    members = 0
    for name in names:
        members |= bitmaps.get(name, 0)
    return members


def _in_range(found: Matches, wanted: NumberRange) -> int:
    low, high, numbers = wanted.low, wanted.high, found.columns[wanted.column]
    return int(bytes([low <= number <= high for number in numbers]).translate(_AS_DIGITS), 2)


def read_blocks(index: Index, blocks: Sequence[int], names: Sequence[str], columns: Sequence[str]) -> Matches:
    """Read some blocks; what belongs to one block comes from one moment, unless it is more than a command may ask.

    Returns: without members, and with all names.
    """
    parts = read_parts(index, blocks, names, columns)
    num_places = BLOCK * len(blocks)
    return Matches(
        members=0,
        blocks=blocks,
        bitmaps={
            name: int.from_bytes(b"".join([one.ljust(BITMAP_BYTES, b"\0") for one in parts[name]])) for name in names
        },
        columns={name: struct.unpack(f"<{num_places}d", b"".join(parts[name])) for name in columns},
    )


def read_parts(
    index: Index, blocks: Sequence[int], names: Sequence[str], columns: Sequence[str]
) -> dict[str, list[bytes]]:
    """Read bitmaps and columns as they are stored; a column is padded with what is not known.

    Returns: by name, one of each block.
    """
    at_once = max(1, min(_MAX_KEYS // max(1, len(names)), _MAX_COLUMNS // len(columns) if columns else _MAX_KEYS))
    parts: dict[str, list[bytes]] = {name: [] for name in (*names, *columns)}
    for page in batched(blocks, at_once):
        begin = index.keys.name("b")
        begins = [f"{begin}:{block}:" for block in page]
        stored = _read_strings(index, [f"{begin}{name}" for name in parts for begin in begins])
        for name in parts:
            parts[name] += islice(stored, len(page))
    for name in columns:  # one that was lost, and written again from some place on, ends where the last one stands
        parts[name] = [one + _UNKNOWN[len(one) :] for one in parts[name]]
    return parts


def _read_strings(index: Index, keys: Sequence[str]) -> Iterator[bytes]:
    for page in batched(keys, _MAX_KEYS):
        for stored in cast("list[bytes | None]", index.redis.mget(page)):
            yield stored or b""
