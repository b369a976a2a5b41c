"""Blobs: large contents and media as objects of their own, fetched only when a reader needs them.

A blob is stored at ``{namespace}/blob/{first two letters}/{name}``, as one frame
``[u32 length | u32 crc32 | zstd(body)]``. Its name begins with the content hash of the body; trajectories with the
same content share it. ``blob_refs.py`` counts the references.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import zstandard

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, ObjectStore
from agent_layer.recorder import frame, unframe
from agent_layer.schema import Content, Trajectory, content_hash, new_id

_NAME = re.compile(r"([0-9a-f]{32})-[0-9a-z]{26}")
_MEDIA: Final = re.compile(rb'"data:[^"]{0,200}?;base64,')
"""Images as the gateway takes them out of messages: the JSON string of a data URL, and nothing else."""
_LEVEL = 1
_NUM_AT_ONCE = 16
"""Concurrent fetches; a remote store answers each of them slowly."""


class BlobLimits(msgspec.Struct, frozen=True):
    """Sizes above which contents become blobs."""

    any_bytes: int = 64 << 10
    media_bytes: int = 4 << 10


def is_large(content: Content, limits: BlobLimits) -> bool:
    """Whether a content is stored as an object of its own."""
    least = limits.media_bytes if _MEDIA.match(content.body) else limits.any_bytes
    return len(content.body) > least


def blob_name(body: bytes) -> str:
    """Return a new name for a blob; each call returns another one."""
    return f"{content_hash(body)}-{new_id()}"


def blob_key(keys: Keys, name: str) -> str:
    """Key of the object of a blob.

    Raises: CorruptRecordError: there can be no blob of this name.
    """
    _hash_in(name)
    return f"{keys.namespace}/blob/{name[:2]}/{name}"


def parse_blob_key(key: str) -> str | None:
    """Name of the blob with this key; None if it is no key of a blob."""
    name = key.rpartition("/")[2]
    return name if _NAME.fullmatch(name) else None


def list_blobs(keys: Keys, objects: ObjectStore) -> Iterator[str]:
    """Names of all blobs of the namespace."""
    yield from filter(None, map(parse_blob_key, objects.list(f"{keys.namespace}/blob/")))


def pack(body: bytes) -> bytes:
    """Return the stored form of a body."""
    return frame(zstandard.ZstdCompressor(level=_LEVEL).compress(body))


def read_blob(keys: Keys, objects: ObjectStore, name: str) -> bytes:
    """Fetch a body.

    Raises:
        NotFoundError: its object is gone.
        CorruptRecordError: the object does not match its name.
    """
    try:
        packed = objects.get(blob_key(keys, name))
    except NotFoundError as error:
        raise NotFoundError(
            f"blob {name}: expected it at {blob_key(keys, name)!r}, found no object; restore it from a copy, or read"
            " the trajectory without its blobs"
        ) from error
    body: bytes | None = None
    with suppress(zstandard.ZstdError):
        if (content := unframe(packed)) is not None:
            body = zstandard.ZstdDecompressor().decompress(content)
    if body is None or content_hash(body) != _hash_in(name):
        raise CorruptRecordError(
            f"blob {name}: expected bytes with this hash, found others; restore the object from a copy"
        )
    return body


def fetch_contents(keys: Keys, objects: ObjectStore, trajectory: Trajectory) -> Trajectory:
    """Fetch all contents that are in blobs; raises the same as ``read_blob``."""
    absent = {hash_: name for hash_, name in trajectory.blobs.items() if hash_ not in trajectory.contents}
    if not absent:
        return trajectory
    with ThreadPoolExecutor(min(_NUM_AT_ONCE, len(absent))) as threads:
        bodies = list(threads.map(partial(read_blob, keys, objects), absent.values()))
    fetched = dict(zip(absent, bodies, strict=True))
    return msgspec.structs.replace(trajectory, contents=trajectory.contents | fetched)


class Contents(Mapping[str, bytes]):
    """All contents of a trajectory by hash; those in blobs are fetched when they are read, and then kept."""

    def __init__(self, trajectory: Trajectory, fetch: Callable[[str], bytes]) -> None:
        self._known = dict(trajectory.contents)
        self._blobs = trajectory.blobs
        self._fetch = fetch

    def __getitem__(self, content_hash: str) -> bytes:
        """Return a body; raises the same as ``read_blob``."""
        if content_hash not in self._known:
            self._known[content_hash] = self._fetch(self._blobs[content_hash])
        return self._known[content_hash]

    def __contains__(self, content_hash: object) -> bool:
        """Whether the trajectory has it; nothing is fetched."""
        return content_hash in self._known or content_hash in self._blobs

    def __iter__(self) -> Iterator[str]:
        """Hashes, nothing is fetched."""
        return iter(self._known | self._blobs)

    def __len__(self) -> int:
        """Number of contents."""
        return len(self._known | self._blobs)


def _hash_in(name: str) -> str:
    found = _NAME.fullmatch(name)
    if found is None:
        raise CorruptRecordError(
            f"blob {name!r}: expected a content hash, '-' and an id, found another name; the record that refers to it"
            " was written by something else"
        )
    return found[1]
