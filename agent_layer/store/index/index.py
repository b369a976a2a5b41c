"""Reads of the Redis index: rows, locations of bytes, and the map of its blocks.

Redis only hands out strings and rows, a bounded number at a time, so that no search blocks the server for long.
"""

import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis
from redis.client import Pipeline

from agent_layer.infra import Keys, batched
from agent_layer.schema import Chunk, trajectory_owner
from agent_layer.store.index.filters import Conditions, Filters, parse_filters
from agent_layer.store.index.rows import TrajectoryRow, read_row
from agent_layer.store.segments.fields import COLUMNS
from agent_layer.store.segments.tombstones import owner_hash

_MAX_KEYS = 512
"""Per command, so that none takes long."""

BLOCK: Final = 2_048
"""Ordinals in a block; lua/prelude.lua has the same number."""
AS_FLAGS: Final = bytes.maketrans(b"0", b"\0")
"""Turns binary digits into what ``compress`` takes."""
IDS_TOGETHER: Final = 128
"""Members whose ids one hash holds; lua/prelude.lua has the same number."""


class Position(NamedTuple):
    """Position of a trajectory in an order: by value, then by start, then by id."""

    value: float
    started_at: float
    trajectory_id: str


class BlockMap(NamedTuple):
    """Blocks in which all names occur, and the bounds of their numbers."""

    blocks: list[int]
    packed: Sequence[float]
    """[num of these blocks · 2 · num_columns]: least and greatest number of each column of COLUMNS; of one that no
    member of the block has, inf and -inf."""
    num_blocks: int
    """Blocks of the whole index."""
    buckets: list[int]
    """Buckets of rewards that occur, lowest first."""
    places: dict[str, frozenset[int]]
    """Blocks in which a name occurs, or for a bounded value may occur, by name, of those that were asked for."""

    def ends(self, column: str) -> tuple[Sequence[float], Sequence[float]]:
        """Return the least, and the greatest, numbers of a column, by block."""
        at = 2 * COLUMNS.index(column)
        return [*self.packed[at :: 2 * len(COLUMNS)]], [*self.packed[at + 1 :: 2 * len(COLUMNS)]]


_Map: TypeAlias = tuple[dict[bytes, bytes], set[bytes], *tuple[list[bytes | None], ...]]


class Index:
    """Answers from the index of one namespace; nothing here touches objects."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys

    def rows(self, trajectory_ids: Iterable[str]) -> list[TrajectoryRow]:
        """Rows in the order asked for; ids that the index does not know are left out."""
        ids = list(trajectory_ids)
        return [read_row(id_, fields) for id_, fields in zip(ids, self._read_hashes(ids), strict=True) if fields]

    def rows_with_positions(
        self, found: Sequence[tuple[str, int]], column: str
    ) -> list[tuple[Position, TrajectoryRow]]:
        """Rows with their positions, from one read.

        Args:
            found: trajectories with their ordinals. A row that was lost, and filed again elsewhere, is left out.
            column: that sorts; a row without a value in it is left out.
        """
        by = column.encode()
        stored = self._read_hashes([trajectory_id for trajectory_id, _ in found])
        return [
            (Position(float(fields[by]), float(fields[b"started_at"]), trajectory_id), read_row(trajectory_id, fields))
            for (trajectory_id, ordinal), fields in zip(found, stored, strict=True)
            if by in fields and b"started_at" in fields and int(fields.get(b"ordinal", -1)) == ordinal
        ]

    def find_ids(self, ordinals: Iterable[int]) -> dict[int, str]:
        """Trajectories by ordinal; one whose trajectory is gone is left out."""
        by_hash = defaultdict[str, list[int]](list)
        for ordinal in ordinals:
            block, at = divmod(ordinal, BLOCK)
            by_hash[self.keys.in_block(block, f"ids:{at // IDS_TOGETHER}")].append(ordinal)
        pipeline = self.pipeline()
        for key, those in by_hash.items():
            pipeline.hmget(key, [ordinal % BLOCK for ordinal in those])
        found = cast("list[list[bytes | None]]", pipeline.execute())
        pairs = zip(chain.from_iterable(by_hash.values()), chain.from_iterable(found), strict=True)
        return {ordinal: id_.decode() for ordinal, id_ in pairs if id_ is not None}

    def read_lists(self, ordinals: Iterable[int], field: str) -> Iterator[tuple[int, list[str]]]:
        """Yield ordinal and value of a field that is a list; of trajectories that are there."""
        ids = self.find_ids(ordinals)
        pipeline = self.pipeline()
        for trajectory_id in ids.values():
            pipeline.hget(self.keys.trajectory(trajectory_id), field)
        for ordinal, stored in zip(ids, cast("list[bytes | None]", pipeline.execute()), strict=True):
            if stored is not None:
                yield ordinal, msgspec.json.decode(stored, type=list[str])

    def chunks(self, trajectory_id: str) -> list[tuple[str, Chunk]]:
        """Location of the trajectory's bytes: (segment name, chunk), in order of segment."""
        found = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.chunks(trajectory_id)))
        return [
            (
                segment.decode(),
                Chunk(owner=trajectory_owner(trajectory_id), offset=int(offset), size_bytes=int(size_bytes)),
            )
            for segment, place in sorted(found.items())
            for offset, size_bytes in [place.split()]
        ]

    def are_deleted(self, owners: Sequence[str]) -> list[bool]:
        """Which of these owners were deleted."""
        if not owners:
            return []
        return [when is not None for when in self.redis.hmget(self.keys.dead, [owner_hash(one) for one in owners])]

    def parse(self, filters: Filters) -> Conditions:
        """Translate filters to conditions; a value that this version does not know is accepted where it occurs.

        Raises: BadInputError: no such filter, or it cannot have this value.
        """
        return parse_filters(filters, self._occurs)

    def _occurs(self, field: str, value: str) -> bool:
        return value.encode() in self.redis.smembers(self.keys.values(field))

    def read_map(self, conditions: Conditions | None = None, besides: Iterable[str] = ()) -> BlockMap:
        """Return the blocks in which all names of the conditions occur, from one read; None: all blocks.

        Args:
            conditions: on members.
            besides: names whose places are read, too.
        """
        needed, bounded = ((), ()) if conditions is None else (conditions.names, conditions.bounded)
        unique_names = list(dict.fromkeys((*needed, *(one.rest for one in bounded), *besides)))
        pipeline = self.pipeline()
        pipeline.hgetall(self.keys.zones)
        pipeline.smembers(self.keys.values("bucket"))
        for page in batched(unique_names, _MAX_KEYS):
            pipeline.mget([self.keys.blocks_with(name) for name in page])
        packed, buckets, *pages = cast("_Map", pipeline.execute())
        bitmaps = zip(unique_names, chain.from_iterable(pages), strict=True)
        places = {name: frozenset(set_bits(bitmap or b"")) for name, bitmap in bitmaps}
        places |= {one.name: places[one.name] | places[one.rest] for one in bounded}
        zones = {int(block): ends for block, ends in packed.items() if ends}
        blocks = [*frozenset(zones).intersection(*(places[name] for name in needed))]
        return BlockMap(
            blocks=blocks,
            packed=view_numbers(b"".join([zones[block] for block in blocks])),
            num_blocks=len(packed),
            buckets=sorted(map(int, buckets)),
            places=places,
        )

    def pipeline(self) -> Pipeline:
        """Many commands at once, in no transaction."""
        return self.redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py

    def _read_hashes(self, trajectory_ids: Sequence[str]) -> list[dict[bytes, bytes]]:
        pipeline = self.pipeline()
        for trajectory_id in trajectory_ids:
            pipeline.hgetall(self.keys.trajectory(trajectory_id))
        return cast("list[dict[bytes, bytes]]", pipeline.execute())


def set_bits(bitmap: bytes) -> list[int]:
    """Return the places of the bits that are set; the highest bit of the first byte has place 0."""
    digits = f"{int.from_bytes(bitmap):0{8 * len(bitmap)}b}"
    return [*compress(range(len(digits)), digits.encode().translate(AS_FLAGS))]


def view_numbers(stored: bytes) -> Sequence[float]:
    """Return float64s as stored, without a copy of each where this machine writes numbers as Redis has them."""
    if sys.byteorder == "little":
        return memoryview(stored).cast("d")
    return struct.unpack(f"<{len(stored) // 8}d", stored)
