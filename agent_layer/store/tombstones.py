"""This file holds tombstones: objects of their own that say what is dead, so that no rebuild brings it back.

They lie under ``{namespace}/dead/`` and are read before segments are. A tombstone names its owner by a hash only.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.recorder.frames import frame, read_frames
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.segment import Tombstone
from agent_layer.store.index import owner_hash
from agent_layer.store.keys import Keys
from agent_layer.store.living import deaths_of
from agent_layer.store.pages import pages_of
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.scripts import load_script

__all__ = ["bury", "forget", "leave_out_dead", "list_tombstones", "write_tombstones"]

T = TypeVar("T")

_OWNERS_AT_ONCE = 64
"""That one script takes out of the index at most, so that nobody waits long for Redis."""
_ENDING = ".dead"


def write_tombstones(keys: Keys, objects: ObjectStore, owners: Sequence[str], reason: str) -> float:
    """Say in the objects that these are dead; gives when. From then on no rebuild brings them back.

    Args:
        keys: of the namespace.
        objects: where to say so.
        owners: trajectory ids, or ``group:`` and a group's id.
        reason: such as ``deleted`` or ``expired``; nothing that names anybody.
    """
    now = time.time()
    stones = [Tombstone(owner_hash=owner_hash(owner), deleted_at=now, reason=reason) for owner in owners]
    day = datetime.fromtimestamp(now, UTC)
    key = f"{keys.namespace}/dead/{day:%Y/%m/%d}/{new_id()}{_ENDING}"
    objects.put(key, b"".join(frame(encode(stone)) for stone in stones))
    return now


def forget(redis: Redis, keys: Keys, owners: Sequence[str], deleted_at: float) -> None:
    """Take these out of the index, and note which segments hold bytes of them."""
    script = load_script(redis, "forget")
    for page in pages_of(owners, _OWNERS_AT_ONCE):
        script(keys=[keys.name()], args=[repr(deleted_at), *page])


def list_tombstones(keys: Keys, objects: ObjectStore) -> Iterator[Tombstone]:
    """Read all tombstones; what others have put beside them is passed over.

    Raises: CorruptRecordError: some cannot be read; without them the dead would come back.
    """
    for key in objects.list(f"{keys.namespace}/dead/"):
        if not key.endswith(_ENDING):
            continue
        contents, num_torn = read_frames(objects.get(key))
        if num_torn:
            raise CorruptRecordError(
                f"tombstones {key}: expected whole frames, found {num_torn} bytes that are none; restore the object"
                " from a copy, or what it names dead would come back"
            )
        for content in contents:
            stone = decode(content)
            if isinstance(stone, Tombstone):
                yield stone


def bury(redis: Redis, keys: Keys, stones: Iterable[Tombstone]) -> None:
    """Let the index know of tombstones before it reads any segment."""
    times = {stone.owner_hash: repr(stone.deleted_at) for stone in stones}
    if times:
        redis.hset(keys.dead, mapping={**times})


def leave_out_dead(redis: Redis, keys: Keys, records_by_owner: Mapping[str, T]) -> dict[str, T]:
    """Drop what belongs to something that was deleted, so that its bytes are not stored again."""
    deaths = deaths_of(redis, keys, records_by_owner)
    return {owner: records for owner, records in records_by_owner.items() if owner not in deaths}
