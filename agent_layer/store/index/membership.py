"""Whether given trajectories pass filters, by the bitmaps and columns of their blocks alone."""

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from agent_layer.store.index.filters import Filters, parse_filters
from agent_layer.store.index.index import Index, scan_request

BLOCK: Final = 2_048
"""Ordinals in a block; lua/prelude.lua has the same number."""


def select_matching(index: Index, trajectory_ids: Sequence[str], filters: Filters) -> set[str]:
    """Return those of the trajectories that pass all filters, as a search would find them.

    Raises: BadInputError: a filter is not valid.
    """
    conditions = parse_filters(filters)
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hget(index.keys.trajectory(trajectory_id), "ordinal")
    ordinals = cast("list[bytes | None]", pipeline.execute())
    found = set[str]()
    for block in sorted({int(ordinal) // BLOCK for ordinal in ordinals if ordinal is not None}):
        sought = msgspec.structs.replace(scan_request(conditions, [block]), limit=BLOCK)
        found.update(one.trajectory_id for one in index.search_blocks(sought).positions)
    return found.intersection(trajectory_ids)
