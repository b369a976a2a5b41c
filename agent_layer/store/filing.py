"""This file holds the search for trajectories that searches do not find as their rows and rewards say."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from agent_layer.store.commit import rewards_of
from agent_layer.store.index import Index
from agent_layer.store.pages import pages_of

__all__ = ["find_misfiled"]

_AT_ONCE = 64
"""Trajectories that one script looks at, so that nobody waits long for Redis."""
_BASIS = ("declared", "ended", "status", "cause", "reward")


def find_misfiled(index: Index, trajectory_ids: Iterable[str]) -> Iterator[str]:
    """Give those whose block differs from their row, or whose reward does not follow from what was judged."""
    for page in pages_of(trajectory_ids, _AT_ONCE):
        yield from dict.fromkeys([*index.misfiled(page), *_misjudged(index, page)])


def _misjudged(index: Index, trajectory_ids: Sequence[str]) -> Iterator[str]:
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hmget(index.keys.trajectory(trajectory_id), _BASIS)
        pipeline.hvals(index.keys.rewards(trajectory_id))
    found = cast("list[list[bytes | None]]", pipeline.execute())
    for trajectory_id, (*said, stored), judged in zip(trajectory_ids, found[::2], found[1::2], strict=True):
        basis = [trajectory_id.encode(), b"", *(value or b"" for value in said), *cast("list[bytes]", judged)]
        *_, reward = rewards_of([basis])
        if reward.encode() != (stored or b""):
            yield trajectory_id
