"""Who asks a question and reads its answer: the client of an HTTP request, or of a message on a socket."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from agent_layer.gateway.calls.requests import BODY_BOUNDS, body_size, read_text


class Client(Protocol):
    """Who asks, and waits."""

    @property
    def method(self) -> str:
        """HTTP method, for errors."""
        ...

    @property
    def path(self) -> str:
        """Address that was asked."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that describe the question."""
        ...

    @property
    def max_messages(self) -> int:
        """Most messages that may be asked with."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes that the question takes at most."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether it hung up."""
        ...

    async def read(self) -> bytes:
        """Return the question; see ``read_text``."""
        ...

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begin an answer that comes piece by piece. Raises: ConnectionError: the client is gone."""
        ...

    def send(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of an answer that was begun. Raises: ConnectionError: the client is gone."""
        ...


@dataclass(slots=True)
class HttpClient:
    """The client of an HTTP request."""

    http: web.Request
    stream: web.StreamResponse | None = None
    """Its answer, once that comes piece by piece."""

    @property
    def method(self) -> str:
        """See Client."""
        return self.http.method

    @property
    def path(self) -> str:
        """See Client."""
        return self.http.path

    @property
    def headers(self) -> Mapping[str, str]:
        """See Client."""
        return self.http.headers

    @property
    def max_messages(self) -> int:
        """See Client."""
        return self.http.app[BODY_BOUNDS].messages

    @property
    def size_bytes(self) -> int:
        """See Client."""
        return body_size(self.http)

    @property
    def is_gone(self) -> bool:
        """See Client."""
        return self.http.transport is None

    async def read(self) -> bytes:
        """See Client."""
        return await read_text(self.http)

    async def begin(self, headers: Mapping[str, str]) -> None:
        """See Client."""
        self.stream = web.StreamResponse(headers=headers)
        await self.stream.prepare(self.http)

    def send(self, piece: bytes) -> Awaitable[None]:
        """See Client."""
        if self.stream is None:
            raise RuntimeError(f"{self.path}: a piece of an answer was sent before its beginning")
        return self.stream.write(piece)
