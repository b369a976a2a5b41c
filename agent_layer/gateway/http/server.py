"""The HTTP server below the routes: connections that stay silent are closed, and requests that are no HTTP are refused.

A request that cannot be parsed reaches no route and names no dialect. Its refusal has the fields of both shapes of
errors, so every SDK raises its own class.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from signal import SIGINT, SIGTERM
from socket import socket
from ssl import SSLContext
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agent_layer.gateway.dialects.refusals import INTERNAL_ERROR, refuse_own_fault, refuse_unread
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.infra import raise_file_limit

BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""
_SHUTDOWN_SECONDS = 3.0
"""Calls that run when a signal comes may go on for this time; then they are recorded as cut off."""
COUNTERS: Final = web.AppKey("COUNTERS", Counters)
"""What counts the requests that reach no route; an application without it, such as ingest, counts none."""
_Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_KEY: Final = re.compile(r"([?&]|%26|%3F)(key=)[^&\s'\"]*", re.IGNORECASE)
_BAD_REQUEST = (HttpProcessingError, web.RequestPayloadError)


async def serve_until_stopped(
    app: web.Application,
    listeners: Sequence[socket],
    tls: SSLContext | None,
    header_seconds: float,
) -> None:
    """Serve an application until SIGINT or SIGTERM, with as many connections as allowed; see ``GuardedRunner``."""
    raise_file_limit()
    stop = asyncio.Event()
    for number in (SIGINT, SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = GuardedRunner(app, header_seconds, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        for listener in listeners:
            await web.SockSite(runner, listener, ssl_context=tls, backlog=BACKLOG).start()
        await stop.wait()
    finally:
        await runner.cleanup()


class GuardedRunner(web.AppRunner):
    """Runs an application. Bodies stay packed: applications undo gzip and deflate themselves, beside the event loop.

    Args:
        app: what is served.
        header_seconds: longest wait for the whole head of a connection's next request.
        shutdown_timeout: seconds that running requests may go on at the end.
    """

    def __init__(self, app: web.Application, header_seconds: float, *, shutdown_timeout: float) -> None:
        super().__init__(
            app,
            access_log=None,
            keepalive_timeout=header_seconds,
            shutdown_timeout=shutdown_timeout,
            auto_decompress=False,
        )

    async def setup(self) -> None:
        """Start the application."""
        logging.getLogger("aiohttp.server").addFilter(_shorten_bad_request)
        await super().setup()

    async def _make_server(self) -> web.Server:  # kept: aiohttp calls it
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            self.app.get(COUNTERS, Counters()),
            request_factory=made.request_factory,
            **self._kwargs,
        )


class _Server(web.Server):
    def __init__(self, handler: _Handler, counters: Counters, **options: Any) -> None:  # noqa: ANN401  # aiohttp's own
        super().__init__(handler, **options)
        self._counters = counters

    def count_refusal(self, reason: str) -> None:
        """Count a request that no route could answer."""
        self._counters.add("refused_requests", reason=reason)

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_server",)

    def __init__(self, server: _Server, **options: Any) -> None:  # noqa: ANN401  # aiohttp's own
        super().__init__(server, **options)
        self._server = server

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what no route could; the log has the reason."""
        plain = super().handle_error(request, status, exc, message)  # logs, and ends a connection that was answered
        if isinstance(exc, HttpProcessingError):
            found = _as_sentence(exc.message)
            sentence = f"request: expected HTTP with a URL in ASCII, found {found}; correct the client"
            self._server.count_refusal("bad_request")
            answer = refuse_unread(exc.code, "bad_request", sentence)
        elif status == 500:
            self._server.count_refusal(INTERNAL_ERROR)
            answer = refuse_own_fault(request.path)
        else:
            return plain
        answer.force_close()
        return answer


def _as_sentence(found: str) -> str:
    """Return what a parser quotes of a request on one line, without the key in its address."""
    return _KEY.sub(r"\1\2…", " ".join(found.split()))


def _shorten_bad_request(record: logging.LogRecord) -> bool:
    """Log a sentence for a request that cannot be read, instead of where aiohttp found that out."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if isinstance(error, _BAD_REQUEST):
        record.msg, record.args = "request refused reason=%r", (_as_sentence(str(error)),)
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True
