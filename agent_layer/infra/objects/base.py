"""Protocol of object stores: what the store requires of the place of its bytes."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class ObjectEntry(NamedTuple):
    """One line of a listing."""

    key: str
    size_bytes: int
    modified_at: float
    """Seconds since the epoch, by the store's clock."""


class ObjectStore(Protocol):
    """Objects by key, as in S3. Keys are parts joined by ``/``; no part begins with a dot.

    An object exists as a whole or not at all. Every list or read after ``put`` returned sees it. A second ``put`` to a
    key replaces its object. Every method raises UnreachableError when the store does not do what was requested.
    """

    def put(self, key: str, content: bytes) -> None:
        """Store an object; when this returns, it survives a power loss."""
        ...

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        """Read an object, or the part of it that begins at an offset; a negative one counts from the end.

        A part that reaches over the end is cut off there.

        Raises: NotFoundError: there is no such object.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yield all keys with this prefix, in order."""
        ...

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """Yield the same keys with sizes and times."""
        ...

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:
        """Yield remains of writers that died before their object was complete; ``delete`` accepts these keys, too."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...
