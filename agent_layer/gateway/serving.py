"""The gateway as a process: its socket, its log and its Redis, until a signal ends it."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing

from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.gateway.app import build_app
from agent_layer.gateway.http.bind import check_exposure, load_tls
from agent_layer.gateway.http.peers import PeerProxy
from agent_layer.gateway.http.server import BACKLOG, serve_until_stopped
from agent_layer.infra import open_redis
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Listen at an address.

    Args:
        host: of this machine.
        port: 0 takes a free one.
        is_shared: other processes of this user may take it too, and each connection goes to one of them.

    Raises: BadInputError: it is taken, or not of this machine.
    """
    try:
        return socket.create_server((host, port), backlog=BACKLOG, reuse_port=is_shared)
    except OSError as error:
        raise BadInputError(
            f"gateway address {host}:{port}: expected to listen there, found {error}; choose another --port or --host"
        ) from error


def serve_gateway(
    settings: Settings,
    listeners: Sequence[socket.socket],
    announce: Callable[[], None] = lambda: None,
    peers: PeerProxy | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: with the operator's key; engines must be in the registry.
        listeners: from ``listen``.
        announce: called when everything that is needed answers; requests are taken from now on.
        peers: the processes of this machine, when there are several.

    Raises:
        UnreachableError: Redis does not answer.
        BadInputError: others could reach a listener without TLS, or the certificate cannot be used.
    """
    for listener in listeners:
        check_exposure(settings, listener.getsockname()[0])
    tls = load_tls(settings)
    with open_redis(settings) as redis, closing(open_recorder(settings, waits=False)) as recorder:
        app = build_app(settings, redis, recorder, peers)
        app.on_startup.append(_calling(announce))
        gc.collect()
        gc.freeze()  # what was imported stays; looking through it again and again would only cost time
        asyncio.run(serve_until_stopped(app, listeners, tls, settings.header_seconds))


def _calling(announce: Callable[[], None]) -> Callable[[web.Application], Awaitable[None]]:
    async def ready(_: web.Application) -> None:
        announce()

    return ready
