"""Deletion of owners from the index."""

from collections.abc import Sequence

from redis import Redis

from agent_layer.infra import Keys, batched
from agent_layer.store.index.scripts import FORGET

_OWNERS_PER_CALL = 64
"""Owners that one script deletes; a larger number would block Redis for longer."""


def apply_tombstones(redis: Redis, keys: Keys, owners: Sequence[str], deleted_at: float) -> None:
    """Drop these owners from the index, and queue the segments that hold their bytes for a rewrite."""
    script = FORGET.load(redis)
    for page in batched(owners, _OWNERS_PER_CALL):
        script(keys=[keys.name()], args=[repr(deleted_at), *page])
