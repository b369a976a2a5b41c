"""This file holds what the store asks of the place where its bytes lie."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class ObjectEntry(NamedTuple):
    """What a listing says of an object."""

    key: str
    size_bytes: int
    modified_at: float
    """Seconds since the epoch, by the store's clock."""


class ObjectStore(Protocol):
    """Objects by key, as S3 has them. Keys are parts joined by ``/``, none of which begins with a dot.

    An object is there as a whole or not at all, and whoever lists or reads after ``put`` returned sees it. Putting a
    key again replaces its object. Every method raises UnreachableError when the store does not do what it is asked.
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
        """Give all keys that begin so, in order."""
        ...

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """Give what ``list`` gives, with sizes and times."""
        ...

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:
        """Give what is left where writers died before an object was there; ``delete`` takes these keys, too."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...
