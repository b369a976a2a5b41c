"""Object store in memory: for an object that was fetched whole, and for trials."""

from collections.abc import Iterator, Mapping

from agent_layer.errors import NotFoundError
from agent_layer.infra.objects.base import ObjectEntry


class MemoryObjects:
    """Objects in a dict; see ObjectStore."""

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self._contents = dict(contents or {})

    def put(self, key: str, content: bytes) -> None:
        """See ObjectStore."""
        self._contents[key] = content

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        """See ObjectStore."""
        if key not in self._contents:
            raise NotFoundError(f"object {key!r} in memory: expected it there, found none")
        content = self._contents[key]
        start = offset if offset >= 0 else max(0, len(content) + offset)
        return content[start : None if size is None else start + size]

    def list(self, prefix: str) -> Iterator[str]:
        """See ObjectStore."""
        yield from sorted(key for key in self._contents if key.startswith(prefix))

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """See ObjectStore. Times are 0: not known."""
        yield from (ObjectEntry(key, len(self._contents[key]), 0.0) for key in self.list(prefix))

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:  # noqa: ARG002  # a dict is written at once
        """See ObjectStore."""
        yield from ()

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        self._contents.pop(key, None)
