"""Whether given trajectories pass filters, by the bitmaps and columns of their blocks alone."""

from collections.abc import Sequence
from typing import cast

from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import BLOCK, Index
from agent_layer.store.index.members import find_matches


def select_matching(index: Index, trajectory_ids: Sequence[str], filters: Filters) -> set[str]:
    """Return those of the trajectories that pass all filters, as a search would find them.

    Raises: BadInputError: a filter is not valid.
    """
    conditions = index.parse(filters)
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hget(index.keys.trajectory(trajectory_id), "ordinal")
    stored = zip(trajectory_ids, cast("list[bytes | None]", pipeline.execute()), strict=True)
    ordinals = {trajectory_id: int(ordinal) for trajectory_id, ordinal in stored if ordinal is not None}
    blocks, found = {ordinal // BLOCK for ordinal in ordinals.values()}, set[str]()
    for matches in find_matches(index, conditions, only=blocks):
        here = {*matches.blocks}
        found.update(
            id_ for id_, ordinal in ordinals.items() if ordinal // BLOCK in here and matches.has_member(ordinal)
        )
    return found
