"""This file holds objects in a bucket of S3, or of anything that speaks it."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypedDict, cast
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from agent_layer.errors import NotFoundError, UnreachableError
from agent_layer.settings import Settings
from agent_layer.store.clients import open_s3
from agent_layer.store.protocols import ObjectEntry

__all__ = ["S3Objects"]


class _Range(TypedDict, total=False):
    Range: str


class _Listed(TypedDict):
    Key: str
    Size: int
    LastModified: datetime


class S3Objects:
    """Objects below a prefix of a bucket; see ObjectStore."""

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.objects_location)
        self._location = settings.objects_location
        self._bucket = parts.netloc
        self._root = f"{parts.path.strip('/')}/".lstrip("/")
        self._client = open_s3(settings)

    def put(self, key: str, content: bytes) -> None:
        """See ObjectStore."""
        with self._asked("store", key):
            self._client.put_object(Bucket=self._bucket, Key=self._root + key, Body=content)

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        """See ObjectStore."""
        with self._asked("read", key):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._root + key, **_range(offset, size))
            except ClientError as error:
                if _code(error) == "InvalidRange":  # begins beyond the end
                    return b""
                raise
            return found["Body"].read()[:size]

    def list(self, prefix: str) -> Iterator[str]:
        """See ObjectStore."""
        yield from (entry.key for entry in self.list_entries(prefix))

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:  # noqa: ARG002  # S3 shows no unfinished objects
        """See ObjectStore."""
        yield from ()

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """See ObjectStore."""
        token: dict[str, str] = {}
        while True:
            with self._asked("list", prefix):
                page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._root + prefix, **token)
            for entry in cast("list[_Listed]", page.get("Contents", [])):
                key, modified_at = entry["Key"].removeprefix(self._root), entry["LastModified"].timestamp()
                yield ObjectEntry(key, entry["Size"], modified_at)
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": str(page["NextContinuationToken"])}

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        with self._asked("delete", key):
            self._client.delete_object(Bucket=self._bucket, Key=self._root + key)

    @contextmanager
    def _asked(self, deed: str, key: str) -> Generator[None]:
        """Say what was asked for when S3 refuses it or does not answer."""
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and _code(error) == "NoSuchKey":
                raise NotFoundError(f"object {key!r} in {self._location}: expected it there, found none") from error
            raise UnreachableError(
                f"object store {self._location}: expected to {deed} {key!r}, found {error};"
                " see AGENT_LAYER_OBJECTS_URL, AWS_ENDPOINT_URL_S3 and the credentials"
            ) from error


def _range(offset: int, size: int | None) -> _Range:
    if offset < 0:
        return {"Range": f"bytes={offset}"}
    if size is None:
        return {"Range": f"bytes={offset}-"} if offset else {}
    return {"Range": f"bytes={offset}-{offset + max(size, 1) - 1}"}


def _code(error: ClientError) -> str:
    return str(cast("dict[str, dict[str, str]]", error.response)["Error"]["Code"])
