"""This file holds checkpoints: from where an attempt goes on when its holder is gone, each an object of its own.

A checkpoint lies at ``{namespace}/ckpt/{trajectory}@{token}-{number}``: 16 bytes of digest, then what it is of,
packed
by zstd. It is stored before the queue notes its name, removed by whoever notes the next one or ends the
attempt, and
last by garbage collection, should all of them have died.
"""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Final

import msgspec
import zstandard

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra.objects import ObjectStore
from agent_layer.infra.redis import Keys

_DIGEST_BYTES: Final = 16
_BEHIND_TRAJECTORY: Final = "@"
"""Stands in no name of a trajectory."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a step boundary."""

    calls: int
    """Model calls that had ended, by the gateway's count: they are kept."""
    seconds: float
    """How much of its time the attempt had used up."""
    state: bytes
    """What the agent needs to go on, in a form of its own."""
    logs: list[str] = []
    """Names of the logs that hold what the attempt's holders had recorded."""


def checkpoint_name(trajectory_id: str, token: str, number: int) -> str:
    """Name the checkpoint of this number that the holder of a lease makes; no name is given twice."""
    return f"{trajectory_id}{_BEHIND_TRAJECTORY}{token}-{number}"


def checkpoint_trajectory(name: str) -> str:
    """Name of the attempt that a checkpoint is of."""
    return name.rpartition(_BEHIND_TRAJECTORY)[0]


def checkpoint_prefix(keys: Keys) -> str:
    """What the keys of all checkpoints begin with."""
    return f"{keys.namespace}/ckpt/"


def parse_checkpoint_key(key: str) -> str | None:
    """Name of the checkpoint that lies at a key; None where none of ours would lie."""
    name = key.rpartition("/")[2]
    return name if checkpoint_trajectory(name) else None


def store_checkpoint(keys: Keys, objects: ObjectStore, name: str, checkpoint: Checkpoint) -> None:
    """Store it; when this returns, it survives a power loss. Raises: UnreachableError."""
    body = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(checkpoint))
    objects.put(_key(keys, name), _digest(body) + body)


def read_checkpoint(keys: Keys, objects: ObjectStore, name: str) -> Checkpoint:
    """Fetch it.

    Raises:
        NotFoundError: there is none, or it was removed.
        CorruptRecordError: what lies there is not what was stored, or another version stored it. UnreachableError.
    """
    try:
        stored = objects.get(_key(keys, name))
    except NotFoundError as error:
        raise NotFoundError(
            f"checkpoint {name}: expected it at {_key(keys, name)!r}, found no object; begin its attempt anew"
        ) from error
    digest, body = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest != _digest(body):
        raise CorruptRecordError(
            f"checkpoint {name}: expected bytes with the digest before them, found others; begin its attempt anew"
        )
    try:
        return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(body), type=Checkpoint)
    except (msgspec.DecodeError, zstandard.ZstdError) as error:
        raise CorruptRecordError(
            f"checkpoint {name}: expected a form that this version reads, found {error}; begin its attempt anew"
        ) from error


def remove_checkpoint(keys: Keys, objects: ObjectStore, name: str) -> None:
    """Remove it; one that is not there is no error. Raises: UnreachableError."""
    objects.delete(_key(keys, name))


def remove_checkpoints(keys: Keys, objects: ObjectStore, trajectory_ids: Collection[str]) -> int:
    """Remove all checkpoints of these attempts; how many. Raises: UnreachableError."""
    names = [name for name in _list(keys, objects) if checkpoint_trajectory(name) in trajectory_ids]
    for name in names:
        remove_checkpoint(keys, objects, name)
    return len(names)


def _list(keys: Keys, objects: ObjectStore) -> Iterator[str]:
    yield from filter(None, map(parse_checkpoint_key, objects.list(checkpoint_prefix(keys))))


def _key(keys: Keys, name: str) -> str:
    return f"{checkpoint_prefix(keys)}{name}"


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
