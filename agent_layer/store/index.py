"""This file holds the reads of the Redis index: rows, chunks, and the walk that a search is made of.

The walk and the test of rows run inside Redis, over a bounded number of members at a time, so that no search holds
up the server for long.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from redis import Redis
from redis.client import Pipeline

from agent_layer.schema.segment import Chunk
from agent_layer.store.keys import Keys
from agent_layer.store.rows import TrajectoryRow, read_row

__all__ = ["Condition", "Direction", "Index", "Position", "Span", "is_after"]

Direction: TypeAlias = Literal["ascending", "descending"]

_LUA = Path(__file__).parent / "lua"
_FIRST_PAGE, _LARGEST_PAGE = 128, 1_024
"""Members looked at in one call: few at first, because the newest often do; never so many that others wait."""


class Position(NamedTuple):
    """Where a trajectory stands in an order."""

    score: float
    trajectory_id: str


class Span(NamedTuple):
    """The members of a sorted set whose score lies between two ends, both included."""

    key: str
    low: float = float("-inf")
    high: float = float("inf")


class Condition(NamedTuple):
    """What a field of a row has to be; lua/match.lua says what the tests mean."""

    field: str
    test: Literal["is", "isnt", "least", "most", "has"]
    value: str | float


class Index:
    """Answers from the index of one namespace; nothing here touches objects."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys
        match, walk, pick = ((_LUA / f"{name}.lua").read_text() for name in ("match", "walk", "pick"))
        self._walk = redis.register_script(match + walk)
        self._pick = redis.register_script(match + pick)

    def rows(self, trajectory_ids: Iterable[str]) -> list[TrajectoryRow]:
        """Rows in the order asked for; ids that the index does not know are left out."""
        ids = list(trajectory_ids)
        pipeline = self.pipeline()
        for trajectory_id in ids:
            pipeline.hgetall(self.keys.trajectory(trajectory_id))
        found = cast("list[dict[bytes, bytes]]", pipeline.execute())
        return [read_row(id_, fields) for id_, fields in zip(ids, found, strict=True) if fields]

    def deleted(self, trajectory_ids: Iterable[str]) -> set[str]:  # noqa: ARG002  # nothing can be deleted yet
        """Which of them were deleted for good."""
        return set()

    def chunks(self, trajectory_id: str) -> list[tuple[str, Chunk]]:
        """Where the trajectory's bytes lie: (segment key, chunk), in order of segment."""
        found = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.chunks(trajectory_id)))
        return [
            (segment.decode(), Chunk(owner=trajectory_id, offset=int(offset), size_bytes=int(size_bytes)))
            for segment, place in sorted(found.items())
            for offset, size_bytes in [place.split()]
        ]

    def counts(self, spans: Iterable[Span]) -> list[int]:
        """How many members each span has."""
        pipeline = self.pipeline()
        for span in spans:
            pipeline.zcount(span.key, span.low, span.high)
        return cast("list[int]", pipeline.execute())

    def members(self, span: Span, order_key: str) -> list[Position]:
        """All members of the span with their scores in another sorted set; those that it lacks are left out."""
        found = self.redis.zrangebyscore(span.key, span.low, span.high)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        ids = [id_.decode() for id_ in cast("list[bytes]", found)]
        scores = self.redis.zmscore(order_key, ids) if ids else []
        return [Position(score, id_) for id_, score in zip(ids, scores, strict=True) if score is not None]

    def walk(
        self, span: Span, direction: Direction, after: Position | None, conditions: Sequence[Condition] = ()
    ) -> Iterator[list[Position]]:
        """Members of the span whose rows meet all conditions, in order of (score, id), from the one after a position.

        They come in pages, some of them empty. Members that come or go meanwhile change nothing for the others: none
        is given twice, none left out.
        """
        keys = [span.key, self.keys.trajectory("")]
        position = after or Position(span.high if direction == "descending" else span.low, "")
        num_members = _FIRST_PAGE
        while found := self._walk(keys=keys, args=[direction, *position, num_members, *_flat(conditions)]):
            position, *page = (
                Position(float(score), id_.decode()) for id_, score in zip(found[::2], found[1::2], strict=True)
            )
            yield [one for one in page if span.low <= one.score <= span.high and is_after(one, after, direction)]
            if not span.low <= position.score <= span.high:
                return
            num_members = min(2 * num_members, _LARGEST_PAGE)

    def pick(self, trajectory_ids: Sequence[str], conditions: Sequence[Condition]) -> list[int]:
        """Which of the trajectories, counted from 0, have rows that meet all conditions."""
        keys = [self.keys.trajectory(id_) for id_ in trajectory_ids]
        return [position - 1 for position in cast("list[int]", self._pick(keys=keys, args=_flat(conditions)))]

    def pipeline(self) -> Pipeline:
        """Many commands at once, in no transaction."""
        return self.redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py


def is_after(one: Position, other: Position | None, direction: Direction) -> bool:
    """Whether a position lies behind another one; everything lies behind None."""
    return other is None or (one < other if direction == "descending" else one > other)


def _flat(conditions: Sequence[Condition]) -> list[str | float]:
    return [value for condition in conditions for value in condition]
