"""A public network for a box that has none: HTTP and HTTPS through a proxy of this process, to public addresses only.

The box reaches the proxy on a loopback port of its own (``HTTP_PROXY``), over the standard streams of a program in it.
So no kind of box needs a network, and neither this machine nor its private network is reachable: each address that a
name stands for must be a public one, and the connection goes to the address that was checked.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from agent_layer.schema.sandbox import Sandbox
from envs.commands import open_tunnel

_PORT: Final = 47114
_MAX_HEAD: Final = 64 << 10
_CHUNK: Final = 64 << 10
_CONNECT_SECONDS: Final = 30.0
_ADDRESS: Final = f"http://127.0.0.1:{_PORT}"
_NAMES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
NETWORK_VARIABLES: Final = dict.fromkeys(_NAMES, _ADDRESS) | dict.fromkeys(
    ("no_proxy", "NO_PROXY"), "localhost,127.0.0.1"
)
"""Variables of a box whose commands may reach the public network."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public network, and no multicast."""
    found = ip_address(address)
    return found.is_global and not found.is_multicast


@asynccontextmanager
async def open_network(box: Sandbox, is_allowed: Callable[[str], bool] = is_public) -> AsyncGenerator[None]:
    """Let commands of a box reach the public network during the block, if its variables say so.

    Args:
        box: with python3 on its PATH.
        is_allowed: whether an address may be reached.

    Raises:
        AgentFailedError: the box has no python3.
        SandboxError: the box was lost.
    """
    if box.spec.env.get("HTTP_PROXY") != _ADDRESS:
        yield
        return
    server = await asyncio.start_server(partial(_serve, is_allowed), "127.0.0.1", 0, limit=_MAX_HEAD)
    async with server, open_tunnel(box, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", _PORT):
        yield


async def _serve(is_allowed: Callable[[str], bool], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: one CONNECT, or one request with an absolute address."""
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if (refusal := await _forward(head, is_allowed, reader, writer)) is not None:
                writer.write(f"HTTP/1.1 {refusal}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
    finally:
        writer.close()


async def _forward(
    head: str, is_allowed: Callable[[str], bool], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str | None:
    """Carry a request and its answer; return the status with which it is refused, None: it was not."""
    line, _, headers = head.partition("\r\n")
    try:
        method, target, version = line.split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = url.hostname or "", url.port or 80
    except ValueError:
        return "400 Bad Request"
    if (address := await _resolve(host, port, is_allowed)) is None:
        return "403 Forbidden"
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            source, sink = await asyncio.open_connection(address, port)
    except OSError:
        return "502 Bad Gateway"
    try:
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            own = ("proxy-", "connection:", "keep-alive:")
            kept = [one for one in headers.split("\r\n") if one and not one.lower().startswith(own)]
            path = url._replace(scheme="", netloc="", path=url.path or "/").geturl()
            lines = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
            sink.write("\r\n".join(lines).encode("latin-1"))
        await asyncio.gather(_copy(reader, sink), _copy(source, writer))
    finally:
        sink.close()
    return None


async def _resolve(host: str, port: int, is_allowed: Callable[[str], bool]) -> str | None:
    """Return an address of a host; None: it has none, or one that may not be reached."""
    with suppress(OSError, UnicodeError):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        if addresses and all(is_allowed(one) for one in addresses):
            return addresses[0]
    return None


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(_CHUNK):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except ConnectionError:
        sink.close()
