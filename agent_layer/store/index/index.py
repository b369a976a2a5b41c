"""Reads of the Redis index: rows, locations of bytes, and the scans that searches consist of.

Scans run inside Redis, over a bounded number of blocks at a time, so that no search blocks the server for long.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis
from redis.client import Pipeline

from agent_layer.infra import Keys, batched
from agent_layer.schema import Chunk, trajectory_owner
from agent_layer.store.index.filters import Conditions
from agent_layer.store.index.rows import TrajectoryRow, read_row
from agent_layer.store.index.scripts import SEARCH
from agent_layer.store.segments.fields import COLUMNS
from agent_layer.store.segments.tombstones import owner_hash

_MAX_KEYS = 512
"""Per command, so that none takes long."""
_ENDS = struct.Struct(f"<{2 * len(COLUMNS)}d")


class Position(NamedTuple):
    """Position of a trajectory in an order: by value, then by start, then by id."""

    value: float
    started_at: float
    trajectory_id: str


class Zone(NamedTuple):
    """Bounds of the numbers of a block: (least, greatest) by column."""

    block: int
    ends: dict[str, tuple[float, float]]


class BlockMap(NamedTuple):
    """Blocks that can hold matches."""

    zones: list[Zone]
    """Zones of the blocks in which all names occur."""
    num_blocks: int
    """Blocks of the whole index."""
    buckets: list[int]
    """Buckets of rewards that occur, lowest first."""
    places: dict[str, frozenset[int]]
    """Blocks in which a name occurs, by name, of those that were asked for."""


class ScanResult(NamedTuple):
    """Result of one scan."""

    num_tested: int
    positions: list[Position]
    """The first matches, and all that tie with the last of them or with the start of the scan, by all but the id."""


_Map: TypeAlias = tuple[dict[bytes, bytes], set[bytes], *tuple[list[bytes | None], ...]]


class ScanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a scan; see lua/scan.lua and search.lua."""

    blocks: Sequence[int]
    names: Sequence[str]
    without: Sequence[str]
    any: Sequence[str] | None = None
    ranges: Sequence[tuple[str, float, float]]
    column: str = "started_at"
    descending: bool = True
    limit: int = 1
    after: tuple[float, float] | None = None
    bound: tuple[float, float] | None = None


class Index:
    """Answers from the index of one namespace; nothing here touches objects."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys
        self._search = SEARCH.load(redis)

    def rows(self, trajectory_ids: Iterable[str]) -> list[TrajectoryRow]:
        """Rows in the order asked for; ids that the index does not know are left out."""
        ids = list(trajectory_ids)
        return [read_row(id_, fields) for id_, fields in zip(ids, self._read_hashes(ids), strict=True) if fields]

    def rows_with_positions(self, trajectory_ids: Iterable[str], column: str) -> list[tuple[Position, TrajectoryRow]]:
        """Rows with their positions, from one read; a row without a value in the column is left out."""
        ids = list(trajectory_ids)
        return [
            (Position(float(fields[column.encode()]), float(fields[b"started_at"]), id_), read_row(id_, fields))
            for id_, fields in zip(ids, self._read_hashes(ids), strict=True)
            if column.encode() in fields and b"started_at" in fields
        ]

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

    def read_map(self, names: Iterable[str] = (), besides: Iterable[str] = ()) -> BlockMap:
        """Return the blocks in which all of the names occur, from one read; all blocks where there are no names.

        Args:
            names: of bitmaps.
            besides: names whose places are read, too.
        """
        needed = list(names)
        unique_names = list(dict.fromkeys((*needed, *besides)))
        pipeline = self.pipeline()
        pipeline.hgetall(self.keys.zones)
        pipeline.smembers(self.keys.values("bucket"))
        for page in batched(unique_names, _MAX_KEYS):
            pipeline.mget([self.keys.blocks_with(name) for name in page])
        packed, buckets, *pages = cast("_Map", pipeline.execute())
        zones = {int(block): _unpack_zone(int(block), ends) for block, ends in packed.items() if ends}
        places = _read_places(unique_names, chain.from_iterable(pages))
        return BlockMap(
            zones=[zones[block] for block in frozenset(zones).intersection(*(places[name] for name in needed))],
            num_blocks=len(packed),
            buckets=sorted(map(int, buckets)),
            places=places,
        )

    def zones_with_any(self, scope: BlockMap, names: Sequence[str] | None) -> list[Zone]:
        """Blocks in which at least one of the names occurs; None: all blocks."""
        if names is None:
            return scope.zones
        blocks = frozenset(chain.from_iterable(self.blocks_with(names).values()))
        return [zone for zone in scope.zones if zone.block in blocks]

    def search_blocks(self, sought: ScanRequest) -> ScanResult:
        """The first members of some blocks; see lua/search.lua."""
        answer = self._search(keys=[self.keys.name()], args=[msgspec.msgpack.encode(sought)])
        num_tested, *found = cast("list[bytes]", answer)
        triples = zip(found[::3], found[1::3], found[2::3], strict=True)
        return ScanResult(
            int(num_tested), [Position(float(value), float(at), id_.decode()) for id_, value, at in triples]
        )

    def blocks_with(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """Return by name the blocks in which it occurs."""
        keys = [self.keys.blocks_with(name) for name in names]
        pages = (cast("list[bytes | None]", self.redis.mget(page)) for page in batched(keys, _MAX_KEYS))
        return _read_places(names, chain.from_iterable(pages))

    def pipeline(self) -> Pipeline:
        """Many commands at once, in no transaction."""
        return self.redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py

    def _read_hashes(self, trajectory_ids: Sequence[str]) -> list[dict[bytes, bytes]]:
        pipeline = self.pipeline()
        for trajectory_id in trajectory_ids:
            pipeline.hgetall(self.keys.trajectory(trajectory_id))
        return cast("list[dict[bytes, bytes]]", pipeline.execute())


def scan_request(conditions: Conditions, blocks: Sequence[int], any_of: Sequence[str] | None = None) -> ScanRequest:
    """Arguments of one scan of these blocks."""
    return ScanRequest(
        blocks=blocks,
        names=conditions.names,
        without=conditions.without,
        any=any_of,
        ranges=conditions.ranges,
    )


def _unpack_zone(block: int, packed: bytes) -> Zone:
    ends = _ENDS.unpack(packed)
    return Zone(block, {column: (ends[2 * at], ends[2 * at + 1]) for at, column in enumerate(COLUMNS)})


def _read_places(names: Sequence[str], bitmaps: Iterable[bytes | None]) -> dict[str, frozenset[int]]:
    return {name: frozenset(_set_bits(bitmap or b"")) for name, bitmap in zip(names, bitmaps, strict=True)}


def _set_bits(bitmap: bytes) -> Iterable[int]:
    return (8 * at + bit for at, byte in enumerate(bitmap) if byte for bit in range(8) if byte & 128 >> bit)
