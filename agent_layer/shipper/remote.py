"""Shipping to an ingest server over HTTP, for machines without access to Redis and the objects.

``POST {AGENT_LAYER_INGEST_URL}/v1/logs/NAMESPACE/NAME`` carries the frames of one log, packed with zstd. The answer 200
means that they are committed; after any other answer the log stays here, to be sent again.
"""

import time
from collections import deque
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
import zstandard

from agent_layer.errors import UnreachableError
from agent_layer.recorder import frame
from agent_layer.schema import UNREADABLE
from agent_layer.settings import Settings

_LEVEL = 1
_IDLE_SECONDS = 10.0
"""A connection idle for longer may have been closed by the server; it is opened again."""
_REMEDIES = {
    401: "set AGENT_LAYER_INGEST_KEY to the key that 'agent-layer ingest' prints",
    403: "set AGENT_LAYER_INGEST_KEY to the key that 'agent-layer ingest' prints",
    404: "correct AGENT_LAYER_INGEST_URL, or AGENT_LAYER_NAMESPACE here or there",
    413: "raise AGENT_LAYER_MAX_BODY_BYTES there",
}


class _Refusal(msgspec.Struct, frozen=True):
    """Body of an ingest server's refusal."""

    error: str = ""
    log: str = ""
    """Name of the refused log; proves that an ingest server answered."""


class _Answer(NamedTuple):
    status: int
    body: bytes


class _Idle(NamedTuple):
    connection: HTTPConnection
    since: float


class RemoteDestination:
    """One namespace behind an ingest server; see Destination."""

    num_at_once = 8

    def __init__(self, settings: Settings) -> None:
        self._url = settings.ingest_url or ""
        self._limit_seconds = settings.retry_seconds
        self._path = f"{urlsplit(self._url).path.rstrip('/')}/v1/logs/{quote(settings.namespace, safe='')}"
        self._headers = {
            "x-api-key": settings.ingest_key or settings.api_key or "",
            "content-type": "application/zstd",
        }
        self._idle: deque[_Idle] = deque()
        """Idle connections, most recently used last."""

    def store(self, name: str, contents: Sequence[bytes]) -> str | None:
        """See Destination."""
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(map(frame, contents)))
        answer = self._send(f"{self._path}/{quote(name, safe='')}", packed)
        if answer.status == 200:
            return None
        try:
            refusal = msgspec.json.decode(answer.body, type=_Refusal)
        except UNREADABLE:  # a page of another server
            refusal = _Refusal()
        if answer.status == 400 and refusal.log == name:
            return refusal.error
        remedy = _REMEDIES.get(answer.status, "it is sent again until it is taken")
        raise UnreachableError(
            f"ingest at {self._url}: expected to take log {name}, found {answer.status} {refusal.error!r}; {remedy}"
        )

    def ship_decisions(self) -> int:
        """See Destination; always 0, because shippers with access to Redis ship decisions."""
        return 0

    def close(self) -> None:
        """See Destination."""
        while self._idle:
            self._idle.pop().connection.close()

    def _send(self, path: str, body: bytes) -> _Answer:
        connection = self._connection()
        try:
            connection.request("POST", path, body, self._headers)
            response = connection.getresponse()
            answer = _Answer(response.status, response.read())
        except (OSError, HTTPException) as error:
            connection.close()
            raise UnreachableError(
                f"ingest at {self._url}: expected an answer within {self._limit_seconds:g} s, found {error!r};"
                " start it or correct AGENT_LAYER_INGEST_URL"
            ) from error
        self._idle.append(_Idle(connection, time.monotonic()))
        return answer

    def _connection(self) -> HTTPConnection:
        """Return a connection that no other thread uses."""
        try:
            idle = self._idle.pop()
        except IndexError:
            parts = urlsplit(self._url)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            return kind(parts.netloc, timeout=self._limit_seconds)
        if time.monotonic() - idle.since > _IDLE_SECONDS:
            idle.connection.close()  # opens itself again
        return idle.connection
