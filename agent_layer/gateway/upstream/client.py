"""Requests to engines, over connections that are kept for the next request, or closed to stop an engine.

A client library would do more than an engine needs, at twice the processor time.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.upstream.connection import ClosedBeforeResponseError, Connection
from agent_layer.gateway.upstream.wire import WireError

_KEEPALIVE_SECONDS = 4.0
"""Shorter than uvicorn's 5, so that hardly a call is sent on a connection that vLLM is closing."""


class _EndpointKey(NamedTuple):
    """What connections can be shared for."""

    host: str
    port: int
    is_tls: bool


class Reply:
    """An answer whose head has come."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self._url = url
        self.status = connection.head.status
        self.content_type = self.header("content-type").partition(";")[0].strip().lower()
        """Without parameters, in small letters."""

    def header(self, name: str) -> str:
        """A header field by its name in small letters; empty where there is none."""
        return self._connection.head.field(name)

    async def read(self) -> bytes:
        """Everything that was not read yet.

        Raises: EngineError: the engine broke off, or took too long.
        """
        try:
            return await self._connection.read_all()
        except WireError as error:
            raise _to_engine_error(self._url, error) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises: EngineError: the engine broke off, or took too long.
        """
        try:
            while piece := await self._connection.read_some():
                yield piece
        except WireError as error:
            raise _to_engine_error(self._url, error) from error


class Upstream:
    """Sends requests, and keeps connections for the next ones.

    Args:
        connect_seconds: longest wait for a connection.
        answer_seconds: longest time until the last byte of an answer.
    """

    def __init__(self, connect_seconds: float, answer_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._idle: dict[_EndpointKey, list[Connection]] = {}
        """The last used one last."""

    @asynccontextmanager
    async def post(self, url: str, body: bytes, headers: Mapping[str, str] | None = None) -> AsyncGenerator[Reply]:
        """Send JSON; the reply can be read inside the block. Leaving it early closes the connection.

        Raises: EngineError: the engine cannot be reached, does not answer, or not in HTTP.
        """
        place, opening = _parse_target(url)
        more = "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()]).encode("latin-1")
        head = b"%b%bContent-Length: %d\r\n\r\n" % (opening, more, len(body))
        connection = await self._ask(place, head, body, url)
        del body  # it may be large, and the answer take long
        try:
            yield Reply(connection, url)
        finally:
            if connection.deadline:
                connection.deadline.cancel()
            if connection.is_free:
                connection.idle_since = time.monotonic()
                self._idle.setdefault(place, []).append(connection)
            else:
                connection.transport.abort()

    def close(self) -> None:
        """Close idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.transport.abort()
        self._idle.clear()

    async def _ask(self, place: _EndpointKey, head: bytes, body: bytes, url: str) -> Connection:
        """Send on a connection that is kept, if the server has not just closed it, or else on a new one."""
        while kept := self._take_idle(place):
            try:
                await self._ask_on(kept, head, body)
            except ClosedBeforeResponseError:
                continue
            except WireError as error:
                raise _to_engine_error(url, error) from error
            return kept
        connection = await self._connect(place, url)
        try:
            await self._ask_on(connection, head, body)
        except WireError as error:
            raise _to_engine_error(url, error) from error
        return connection

    async def _ask_on(self, connection: Connection, head: bytes, body: bytes) -> None:
        late = WireError(f"expected the whole answer within {self._answer_seconds:g} s, found it still coming")
        connection.deadline = asyncio.get_running_loop().call_later(self._answer_seconds, connection.fail, late)
        try:
            await connection.ask(head, body)
        except BaseException:
            connection.deadline.cancel()
            connection.transport.abort()
            raise

    async def _connect(self, place: _EndpointKey, url: str) -> Connection:
        context = _tls_context() if place.is_tls else None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, place.host, place.port, ssl=context
                )
        except (OSError, TimeoutError) as error:
            why = f"expected to connect within {self._connect_seconds:g} s, found {error!r}"
            raise EngineError(f"engine {url}: {why}; is it running?") from error
        return connection

    def _take_idle(self, place: _EndpointKey) -> Connection | None:
        fresh_since = time.monotonic() - _KEEPALIVE_SECONDS
        waiting = self._idle.get(place, [])
        while waiting:
            connection = waiting.pop()
            if connection.is_free and connection.idle_since > fresh_since:
                return connection
            connection.transport.abort()
        return None


def was_reached(error: EngineError) -> bool:
    """Whether the engine could have read the request that ended in this error."""
    return not isinstance(error.__cause__, OSError)  # as ``_connect`` raises it


@cache
def _parse_target(url: str) -> tuple[_EndpointKey, bytes]:
    """Where a URL leads, and how a request there begins.

    Raises: BadInputError: it is no address of a web server.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or not url.isascii():
        raise BadInputError(f"engine {url!r}: expected http://HOST:PORT or https://HOST:PORT; correct the address")
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    fields = "Content-Type: application/json\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
    opening = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n{fields}".encode()
    is_tls = parts.scheme == "https"
    return _EndpointKey(parts.hostname, port or (443 if is_tls else 80), is_tls), opening


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _to_engine_error(url: str, error: WireError) -> EngineError:
    return EngineError(f"engine {url}: {error}; is it running?")
