"""Object store in a bucket of S3, or of a server with S3's interface."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from hashlib import md5
from typing import TypedDict, TypeVar, cast
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError, HTTPClientError, SSLError

from agent_layer.errors import NotFoundError, UnreachableError
from agent_layer.infra.backoff import Backoff
from agent_layer.infra.objects.base import ObjectEntry
from agent_layer.infra.objects.s3_client import S3Client, open_s3
from agent_layer.settings import Settings

T = TypeVar("T")

_BACKOFF = Backoff(0.05, 1.0)
_TOO_MANY, _BROKEN, _NOT_IMPLEMENTED = 429, 500, 501
_PASSING = frozenset(
    (
        "SlowDown",
        "RequestTimeout",
        "Throttling",
        "BadDigest",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    )
)
"""Transient refusals: the same request may succeed later. So may every status 429, or from 500 up but 501."""
_STALE = frozenset(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"))
"""Refusals of credentials that may have been rotated since they were read."""


class _Range(TypedDict, total=False):
    Range: str


class _Listing(TypedDict):
    Key: str
    Size: int
    LastModified: datetime


class S3Objects:
    """Objects below a prefix of a bucket; see ObjectStore. Transient failures are retried for ``retry_seconds``."""

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.objects_location)
        self._settings = settings
        self._location = settings.objects_location
        self._bucket = parts.netloc
        self._root = f"{parts.path.strip('/')}/".lstrip("/")
        self._client = open_s3(settings)
        self._has_other_digests = False
        """Whether an ETag was seen that is no MD5 of a whole object, such as that of an encrypted one."""

    def put(self, key: str, content: bytes) -> None:
        """See ObjectStore. The request carries the object's checksum; a server that computes another one refuses it.

        Not every server reads it, and some keep the frames that came around the body. So the digest that the server
        answers is compared; where its digests are of another kind, the first object is read again.
        """
        stored = self._ask(
            "store", key, lambda s3: s3.put_object(Bucket=self._bucket, Key=self._root + key, Body=content)
        )
        digest = md5(content, usedforsecurity=False).hexdigest()
        if self._has_other_digests or stored.get("ETag", "").strip('"').lower() == digest:
            return
        if self.get(key) != content:
            raise UnreachableError(
                f"object store {self._location}: expected {key!r} as it was sent, found other bytes stored; if the"
                " server knows no checksums, start this process with AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
            )
        self._has_other_digests = True

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        """See ObjectStore."""

        def read(s3: S3Client) -> bytes:
            try:
                found = s3.get_object(Bucket=self._bucket, Key=self._root + key, **_range(offset, size))
            except ClientError as error:
                if _code(error) == "InvalidRange":  # begins beyond the end
                    return b""
                raise
            return found["Body"].read()[:size]

        return self._ask("read", key, read)

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
            page = self._ask("list", prefix, partial(self._list_page, prefix, token))
            for entry in cast("list[_Listing]", page.get("Contents", [])):
                key, modified_at = entry["Key"].removeprefix(self._root), entry["LastModified"].timestamp()
                yield ObjectEntry(key, entry["Size"], modified_at)
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": str(page["NextContinuationToken"])}

    def _list_page(self, prefix: str, token: dict[str, str], s3: S3Client) -> dict[str, object]:
        return s3.list_objects_v2(Bucket=self._bucket, Prefix=self._root + prefix, **token)

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        self._ask("delete", key, lambda s3: s3.delete_object(Bucket=self._bucket, Key=self._root + key))

    def _ask(self, deed: str, key: str, ask: Callable[[S3Client], T]) -> T:
        """Repeat a request until S3 answers; its refusals and time-outs become errors that name the request."""
        delays = _BACKOFF.delays(self._settings.retry_seconds)
        while True:
            try:
                return ask(self._client)
            except (ClientError, BotoCoreError) as error:
                if _code(error) == "NoSuchKey":
                    raise NotFoundError(f"object {key!r} in {self._location}: expected it there, found none") from error
                wait = next(delays, None) if _passes(error) else None
                if wait is None:
                    attempted = f"object store {self._location}: expected to {deed} {key!r}"
                    raise UnreachableError(f"{attempted}, found {error}; see {_remedy(error)}") from error
                if _code(error) in _STALE:
                    self._client = open_s3(self._settings)
            time.sleep(wait)


def _passes(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ClientError):
        status = _status(error)
        is_passing = status == _TOO_MANY or (status >= _BROKEN and status != _NOT_IMPLEMENTED)
        return is_passing or _code(error) in _PASSING | _STALE
    return isinstance(error, HTTPClientError | FlexibleChecksumError) and not isinstance(error, SSLError)


def _status(error: ClientError) -> int:
    about = cast("dict[str, dict[str, int]]", error.response)  # pyright: ignore[reportUnknownMemberType]  # untyped
    return about.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _remedy(error: Exception) -> str:
    if isinstance(error, SSLError):
        return "AWS_CA_BUNDLE, the certificate of the server's authority"
    if _code(error) in _STALE:
        return "the credentials, which have expired"
    if _code(error) == "NoSuchBucket":
        return "AGENT_LAYER_OBJECTS_URL, or create the bucket"
    if isinstance(error, ClientError) and _status(error) == _NOT_IMPLEMENTED:
        return "the server's manual; if it knows no checksums, set AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
    return "AGENT_LAYER_OBJECTS_URL, AWS_ENDPOINT_URL_S3 and the credentials"


def _range(offset: int, size: int | None) -> _Range:
    if offset < 0:
        return {"Range": f"bytes={offset}"}
    if size is None:
        return {"Range": f"bytes={offset}-"} if offset else {}
    return {"Range": f"bytes={offset}-{offset + max(size, 1) - 1}"}


def _code(error: Exception) -> str:
    """Return S3's error code; empty when it did not answer."""
    if not isinstance(error, ClientError):
        return ""
    about = cast("dict[str, dict[str, str]]", error.response)  # pyright: ignore[reportUnknownMemberType]  # untyped
    return about.get("Error", {}).get("Code", "")
