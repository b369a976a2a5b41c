"""Blocks side by side, as Python computes with them: bitmaps become integers, columns numbers.

Redis only hands out strings, some thousand at a time: a script that counts keeps all others waiting, and takes far
longer than operations on integers.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import Final, NamedTuple, cast

from agent_layer.infra import batched
from agent_layer.store.index.filters import BoundedValue, Conditions
from agent_layer.store.index.index import AS_FLAGS, BLOCK, Index, set_bits

BITMAP_BYTES: Final = BLOCK // 8
_MAX_KEYS: Final = 2048
"""Bitmaps per command: Redis copies these in about a millisecond."""
_MAX_COLUMNS: Final = 32
"""Columns per command, each of 16 KB."""
_UNKNOWN: Final = struct.pack("<d", float("nan")) * BLOCK


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

    def split(self, members: int) -> dict[int, int]:
        """Return the members by block; a block without any is left out."""
        packed = members.to_bytes(BITMAP_BYTES * len(self.blocks))
        parts = (packed[begin : begin + BITMAP_BYTES] for begin in range(0, len(packed), BITMAP_BYTES))
        return {block: bits for block, part in zip(self.blocks, parts, strict=True) if (bits := int.from_bytes(part))}

    def join(self, by_block: Mapping[int, int]) -> int:
        """Return the members of all blocks."""
        return int.from_bytes(b"".join([by_block.get(block, 0).to_bytes(BITMAP_BYTES) for block in self.blocks]))


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
    for page in batched(set_bits(members.to_bytes(found.num_places // 8)), _MAX_KEYS):
        ordinals = {BLOCK * found.blocks[place // BLOCK] + place % BLOCK: place for place in page}
        for ordinal, values in index.read_lists(ordinals, wanted.field):
            if wanted.value in values:
                passing |= 1 << last - ordinals[ordinal]
    return passing


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
