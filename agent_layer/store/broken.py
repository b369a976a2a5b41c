"""This file holds the search for blobs that are gone or not what their names say, although somebody needs them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.store.blobs import read_blob
from agent_layer.store.findings import Finding
from agent_layer.store.index import Index
from agent_layer.store.pages import pages_of
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.query import scan_trajectories

__all__ = ["find_broken_blobs"]

_PAGE = 256
_NUM_AT_ONCE = 16


def find_broken_blobs(index: Index, objects: ObjectStore) -> Iterator[Finding]:
    """Read every blob that a committed segment refers to, and name those that cannot be shown any more."""

    def fault_of(name: str) -> tuple[str, CorruptRecordError | NotFoundError | None]:
        try:
            read_blob(index.keys, objects, name)
        except (CorruptRecordError, NotFoundError) as error:
            return name, error
        return name, None

    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for page in pages_of((row.trajectory_id for row in scan_trajectories(index, {})), _PAGE):
            users = _users_of(index, page)
            for name, fault in threads.map(fault_of, users):
                if fault and index.redis.hexists(index.keys.blobs_of(users[name]), name):  # not deleted meanwhile
                    kind = "lost" if isinstance(fault, NotFoundError) else "corrupt"
                    yield Finding(kind=kind, subject=users[name], detail=str(fault))


def _users_of(index: Index, trajectory_ids: list[str]) -> dict[str, str]:
    """A trajectory that needs it, by blob."""
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hgetall(index.keys.blobs_of(trajectory_id))
    found = cast("list[dict[bytes, bytes]]", pipeline.execute())
    return {
        name.decode(): trajectory_id
        for trajectory_id, blobs in zip(trajectory_ids, found, strict=True)
        for name, is_stored in blobs.items()
        if is_stored == b"1"
    }
