"""Checkpoints: points from which an attempt resumes when its worker is gone, each an object of its own.

The object ``{namespace}/ckpt/{trajectory}@{token}-{number}`` holds 16 bytes of digest, then the checkpoint packed with
zstd. It is stored before the queue records its name. The writer of the next one, or the end of the attempt, removes it;
garbage collection does so if both died.
"""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Final

import msgspec
import zstandard

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, ObjectStore
from agent_layer.schema import AttemptStarted

_DIGEST_BYTES: Final = 16
_BEHIND_TRAJECTORY: Final = "@"
"""Separator; no trajectory name contains it."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a step boundary."""

    calls: int
    """Model calls that had ended, by the gateway's count: they are kept."""
    seconds: float
    """Time that the attempt had used."""
    state: bytes
    """What the agent needs to continue, in its own form."""
    logs: list[str] = []
    """Names of the logs to which the attempt's workers recorded."""
    started: AttemptStarted | None = None
    """The attempt's recorded start, for the next holder to record again; None: an earlier version made this."""


def checkpoint_name(trajectory_id: str, token: str, number: int) -> str:
    """Return the name of a lease holder's checkpoint of this number; names are unique."""
    return f"{trajectory_id}{_BEHIND_TRAJECTORY}{token}-{number}"


def checkpoint_trajectory(name: str) -> str:
    """Return the id of the attempt to which a checkpoint belongs."""
    return name.rpartition(_BEHIND_TRAJECTORY)[0]


def checkpoint_prefix(keys: Keys) -> str:
    """Return the common prefix of all checkpoint keys."""
    return f"{keys.namespace}/ckpt/"


def parse_checkpoint_key(key: str) -> str | None:
    """Return the name of the checkpoint at a key; None when the key is not a checkpoint's."""
    name = key.rpartition("/")[2]
    return name if checkpoint_trajectory(name) else None


def store_checkpoint(keys: Keys, objects: ObjectStore, name: str, checkpoint: Checkpoint) -> None:
    """Store a checkpoint; when this returns, it survives a power loss. Raises: UnreachableError."""
    body = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(checkpoint))
    objects.put(_key(keys, name), _digest(body) + body)


def read_checkpoint(keys: Keys, objects: ObjectStore, name: str) -> Checkpoint:
    """Fetch a checkpoint.

    Raises:
        NotFoundError: there is none, or it was removed.
        CorruptRecordError: what lies there is not what was stored, or another version stored it. UnreachableError.
    """
    try:
        stored = objects.get(_key(keys, name))
    except NotFoundError as error:
        raise NotFoundError(
            f"checkpoint {name}: expected it at {_key(keys, name)!r}, found no object; start its attempt again"
        ) from error
    digest, body = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest != _digest(body):
        raise CorruptRecordError(
            f"checkpoint {name}: expected bytes with the digest before them, found others; start its attempt again"
        )
    try:
        return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(body), type=Checkpoint)
    except (msgspec.DecodeError, zstandard.ZstdError) as error:
        raise CorruptRecordError(
            f"checkpoint {name}: expected a form that this version reads, found {error}; start its attempt again"
        ) from error


def remove_checkpoint(keys: Keys, objects: ObjectStore, name: str) -> None:
    """Remove a checkpoint if it exists. Raises: UnreachableError."""
    objects.delete(_key(keys, name))


def remove_checkpoints(keys: Keys, objects: ObjectStore, trajectory_ids: Collection[str]) -> int:
    """Remove all checkpoints of these attempts; return how many. Raises: UnreachableError."""
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
