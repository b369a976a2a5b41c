"""Streams of server-sent events over HTTP: bounded in number, each as quick as its reader, ended with the server."""

import asyncio
from typing import Final

from aiohttp import hdrs, web

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.schema import new_id
from agent_layer.view.events.ring import KEPT, Ring
from agent_layer.view.events.watcher import watch
from agent_layer.view.reads.source import ReadContext

MAX_STREAMS: Final = 64
_HEARTBEAT_SECONDS: Final = 15.0
_WRITE_SECONDS: Final = 60.0
"""Seconds without a taken byte before a reader is cut off; it may come back and resume."""
_RETRY_MS: Final = 2_000
_END_SECONDS: Final = 5.0
_PARAMETERS: Final = ("run", "after")


class EventStreams:
    """All open streams, and the watcher that fills them; it starts with the first one."""

    def __init__(self, source: ReadContext, most: int = MAX_STREAMS, kept: int = KEPT) -> None:
        self._source = source
        self._most = most
        self._ring = Ring(new_id(), kept)
        self._num_open = 0
        self._is_ending = False
        self._watcher: asyncio.Task[None] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream that ends with the reader or the server.

        Raises:
            BadInputError: a parameter is not known.
            BackPressureError: there are too many streams.
        """
        if unknown := request.query.keys() - set(_PARAMETERS):
            known = ", ".join(_PARAMETERS)
            raise BadInputError(f"parameter {min(unknown)!r}: expected some of {known}; correct it or leave it out")
        if self._num_open >= self._most:
            raise BackPressureError(
                f"events: expected at most {self._most} streams, found as many open; close a page, or ask again later"
            )
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(watch(self._source, self._ring, lambda: self._num_open > 0))
        self._num_open += 1
        try:
            return await self._stream(request)
        finally:
            self._num_open -= 1

    async def end(self, _: web.Application) -> None:
        """End all streams and the watcher."""
        self._is_ending = True
        self._ring.wake()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher], timeout=_END_SECONDS)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        try:
            await self._send_all(response, request.query.get("run"), _read_position(request))
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:  # the reader is gone
            pass
        return response

    async def _begin(self, response: web.StreamResponse) -> int:
        """Send ``ready`` once a watcher follows the store, so that each later change is sent; return its place."""
        while not self._ring.is_filled and not self._is_ending:
            await self._ring.wait(self._ring.newest, _HEARTBEAT_SECONDS)
            await _write(response, b": waiting\n\n")  # it keeps the connection open, and tells no place
        begun = self._ring.newest
        await _write(response, self._ring.ready(begun))
        return begun

    async def _send_all(self, response: web.StreamResponse, run: str | None, place: str) -> None:
        await _write(response, b"retry: %d\n\n" % _RETRY_MS)
        reached = self._ring.number(place) if place else await self._begin(response)
        while not self._is_ending:
            missed = None if reached is None else self._ring.after(reached)
            if missed is None:
                reached = self._ring.newest
                await _write(response, self._ring.reload())
            elif missed:
                reached = missed[-1].number
                bodies = [one.body for one in missed if run is None or not one.change.runs or run in one.change.runs]
                if bodies:
                    await _write(response, b"".join(bodies))
            elif reached is not None:
                await self._ring.wait(reached, _HEARTBEAT_SECONDS)
                if self._ring.newest == reached and not self._is_ending:
                    await _write(response, self._ring.heartbeat(reached))


def _read_position(request: web.Request) -> str:
    """Return where a reader stopped: browsers send a header when they reconnect, the page a parameter when it wakes."""
    return request.headers.get("Last-Event-ID") or request.query.get("after") or ""


async def _write(response: web.StreamResponse, content: bytes) -> None:
    async with asyncio.timeout(_WRITE_SECONDS):
        await response.write(content)
