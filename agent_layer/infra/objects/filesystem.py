"""Object store in a directory, and the choice of a store by its address."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent_layer.errors import NotFoundError, UnreachableError
from agent_layer.infra.files import is_being_written, make_private, replace_file, sync_path
from agent_layer.infra.objects.base import ObjectEntry, ObjectStore
from agent_layer.settings import Settings


def open_objects(settings: Settings) -> ObjectStore:
    """Open the store that the settings name."""
    parts = urlsplit(settings.objects_location)
    if parts.scheme == "file":
        return DirectoryObjects(Path(unquote(parts.path)))
    from agent_layer.infra.objects.s3 import S3Objects  # noqa: PLC0415  # botocore takes 0.1 s, and only S3 needs it

    return S3Objects(settings)


class DirectoryObjects:
    """Objects as files below a directory; see ObjectStore."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, key: str, content: bytes) -> None:
        """See ObjectStore."""
        path = self._directory / key
        with self._translate_errors("store", key):
            make_private(path.parent)
            replace_file(path, content, sync=True)
            sync_path(path.parent)

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        """See ObjectStore."""
        with self._translate_errors("read", key), (self._directory / key).open("rb") as file:
            if offset < 0:
                offset = max(0, file.seek(0, os.SEEK_END) + offset)
            file.seek(offset)
            return file.read(size)

    def list(self, prefix: str) -> Iterator[str]:
        """See ObjectStore."""
        yield from self._keys(prefix, "[!.]*")

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """See ObjectStore."""
        yield from self._entries(self._keys(prefix, "[!.]*"))

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:
        """See ObjectStore. These files begin with a dot. What a living process writes is none, however old it looks."""
        for entry in self._entries(self._keys(prefix, ".*")):
            with suppress(FileNotFoundError):  # finished since it was listed
                if not is_being_written(self._directory / entry.key):
                    yield entry

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        with self._translate_errors("delete", key):
            (self._directory / key).unlink(missing_ok=True)

    def _keys(self, prefix: str, pattern: str) -> Iterable[str]:
        beginning = self._directory / prefix.rpartition("/")[0]
        paths = (path.relative_to(self._directory).as_posix() for path in beginning.rglob(pattern) if path.is_file())
        return sorted(key for key in paths if key.startswith(prefix))

    def _entries(self, keys: Iterable[str]) -> Iterator[ObjectEntry]:
        for key in keys:
            try:
                found = (self._directory / key).stat()
            except FileNotFoundError:  # deleted, or finished, since it was listed
                continue
            yield ObjectEntry(key, found.st_size, found.st_mtime)

    @contextmanager
    def _translate_errors(self, deed: str, key: str) -> Generator[None]:
        """Turn refusals of the file system into errors that name the request."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(f"object {key!r} in {self._directory}: expected it there, found none") from error
        except OSError as error:
            raise UnreachableError(
                f"object store {self._directory}: expected to {deed} {key!r}, found {error.strerror!r};"
                " see its permissions and its free space"
            ) from error
