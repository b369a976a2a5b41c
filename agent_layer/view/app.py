"""The page and its API as a web application. It only reads, unless it is given a store that it may write to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import msgspec
from aiohttp import hdrs, web

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    BadInputError,
    CorruptRecordError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)
from agent_layer.health import alarm_metrics
from agent_layer.store import Store
from agent_layer.view.access import METRICS, SESSION, Access, writer_name
from agent_layer.view.answer_cache import AnswerCache, CachedAnswer
from agent_layer.view.events.streams import EventStreams
from agent_layer.view.files import SCRIPTS, find_file
from agent_layer.view.openapi import make_document
from agent_layer.view.reads.archive import source_for
from agent_layer.view.reads.images import IMAGES, read_image
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.routes import PREFIX, ROUTES, Route
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.writes.commands import WriteTargets
from agent_layer.view.writes.exports import EXPORTS
from agent_layer.view.writes.journal import Journal
from agent_layer.view.writes.routes import JOURNAL_ROUTES, WRITES, Writer, Writes

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_MAX_BODY_BYTES: Final = 256 * 1024
_STATUS: Final[Mapping[type[AgentLayerError], tuple[int, str]]] = {
    BadInputError: (400, "bad_input"),
    NotFoundError: (404, "not_found"),
    CorruptRecordError: (500, "corrupt"),
    UnreachableError: (503, "unreachable"),
    NotWholeError: (503, "not_whole"),
    BackPressureError: (503, "busy"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
log = logging.getLogger(__name__)


def build_view_app(
    source: ReadContext,
    token: str | None = None,
    *,
    writable: Store | None = None,
    operator_token: str | None = None,
) -> web.Application:
    """Return page and API as a web application.

    Args:
        source: what is shown; with the operator's key of its settings, tasks are shown with their grading.
        token: without it, or the operator's key, nothing is answered; None: only this machine can connect.
        writable: the store under the rights of an operator; None: nothing is written.
        operator_token: stands for the operator's key in an address; None: only the key makes an operator.
    """
    access = Access(
        reader_token=token,
        operator_key=source.settings.api_key,
        operator_token=operator_token,
        takes_writes=writable is not None,
        metrics_key=source.settings.metrics_key,
    )
    view, streams = _View(source, access), EventStreams(source)
    app = web.Application(middlewares=[view.answer_errors, view.guard], client_max_size=_MAX_BODY_BYTES)
    app.on_response_prepare.append(_add_headers)
    app.add_routes([web.get(f"{PREFIX}{route.path}", view.handler(route)) for route in (*ROUTES, *JOURNAL_ROUTES)])
    app.add_routes([web.get(f"{PREFIX}{IMAGES}", view.serve_image)])
    app.add_routes([web.get(METRICS, view.serve_metrics)])
    app.add_routes([web.get(f"{PREFIX}/openapi.json", view.serve_document)])
    app.add_routes([web.get(f"{PREFIX}/events", streams.serve, allow_head=False)])
    app.on_startup.append(_link_scripts)
    app.on_shutdown.append(streams.end)
    app.add_routes([web.post(SESSION, view.open_session)])
    if writable is not None:
        targets = WriteTargets(writable, Dispatcher(writable.redis, source.settings))
        writes = Writes(targets, Journal(writable.keys, writable.objects))
        turn = asyncio.Lock()
        app.add_routes([web.post(f"{PREFIX}{route}", _taker(writes, route, turn)) for route in WRITES])
        app.add_routes([web.post(f"{PREFIX}{route}", _exporter(writes, route, turn)) for route in EXPORTS])
    app.add_routes([web.get("/{path:(?s:.*)}", view.serve_page)])
    return app


class _View:
    def __init__(self, source: ReadContext, access: Access) -> None:
        self._source = source
        self._access = access
        self._answers = AnswerCache()

    def handler(self, route: Route) -> _Handler:
        """Return what answers a route; it reads beside the event loop."""

        async def answer(request: web.Request) -> web.Response:
            query = {name: request.query.getall(name) for name in request.query}
            if unknown := query.keys() - set(route.parameters):
                known = ", ".join(route.parameters) or "none"
                raise BadInputError(f"parameter {min(unknown)!r}: expected some of {known}; correct it or leave it out")
            is_operator = self._access.is_operator(request)
            params = RequestParams(request.match_info, query, is_operator, self._access.takes_writes)
            found = await asyncio.to_thread(self._read, route, params)
            headers = {} if found.tag is None else {hdrs.ETAG: f'W/"{found.tag}"'}
            if found.tag is not None and any(one.value == found.tag for one in request.if_none_match or ()):
                return web.Response(status=304, headers=headers)
            return web.Response(body=found.body, headers=headers, content_type="application/json")

        return answer

    def _read(self, route: Route, params: RequestParams) -> CachedAnswer:
        source = source_for(self._source, params)

        def make() -> bytes:
            return msgspec.json.encode(route.read(source, params))

        if not route.is_of_index or params.is_of_now:
            return CachedAnswer(make(), None)
        question = route.path, source.is_cooled, *((name, *values) for name, values in sorted(params.query.items()))
        return self._answers.get(question, source.index_state(), make)

    async def open_session(self, request: web.Request) -> web.StreamResponse:
        """Return a cookie to a browser that showed the operator's key, to stand for it."""
        return self._access.open_session(request)

    async def serve_image(self, request: web.Request) -> web.Response:
        """Serve a raster image that a message holds, under the type that its bytes say."""
        params = RequestParams(request.match_info, {})
        image = await asyncio.to_thread(lambda: read_image(source_for(self._source, params), params))
        name = f'inline; filename="{params.path["image"]}.{image.kind}"'
        return web.Response(
            body=image.content, content_type=f"image/{image.kind}", headers={hdrs.CONTENT_DISPOSITION: name}
        )

    async def serve_document(self, _: web.Request) -> web.Response:
        """Serve the OpenAPI document."""
        return web.Response(body=msgspec.json.encode(make_document()), content_type="application/json")

    async def serve_metrics(self, _: web.Request) -> web.Response:
        """Serve what alarms measure, for Prometheus."""
        health = self._source.health
        text = await asyncio.to_thread(lambda: alarm_metrics(health.read(health.list_runs())))
        return web.Response(text=text, headers={hdrs.CONTENT_TYPE: "text/plain; version=0.0.4; charset=utf-8"})

    async def serve_page(self, request: web.Request) -> web.StreamResponse:
        """Serve a file of the page, or tell a browser that it has it already."""
        name = request.match_info["path"] or "index.html"
        file = None if name.startswith("api/") else await asyncio.to_thread(find_file, name)
        if file is None:
            raise NotFoundError(f"address {request.path!r}: expected the page or a route of {PREFIX}; see its document")
        headers = {
            hdrs.CACHE_CONTROL: "private, no-cache",
            hdrs.ETAG: f'W/"{file.tag}"',
            hdrs.VARY: hdrs.ACCEPT_ENCODING,
        }
        if any(one.value == file.tag for one in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        body = file.body
        if file.packed is not None and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            headers[hdrs.CONTENT_ENCODING], body = "gzip", file.packed
        return web.Response(body=body, headers=headers, content_type=file.content_type, charset="utf-8")

    @web.middleware
    async def guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse what only other sites ask for, and what has no token or key where one is needed."""
        if (refused := self._access.refuse(request)) is not None:
            return _refuse(*refused)
        return self._access.admit(request) or await handler(request)

    @web.middleware
    async def answer_errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Turn errors into answers with one sentence."""
        try:
            return await handler(request)
        except AgentLayerError as error:
            status, code = next((_STATUS[kind] for kind in type(error).mro() if kind in _STATUS), (500, "internal"))
            return _refuse(status, code, str(error))
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, "too_large", f"body: expected at most {_MAX_BODY_BYTES:,} bytes; send less at once")
        except web.HTTPMethodNotAllowed as error:
            allowed = " or ".join(sorted(error.allowed_methods))
            return _refuse(405, "method", f"{request.method} {request.path!r}: expected {allowed}; use that")
        except web.HTTPException:
            raise
        except Exception:  # one view that fails must not take the others with it
            log.exception("view failed path=%r", request.path)
            return _refuse(500, "internal", "view: it failed at this request; report what its log says")


def _taker(writes: Writes, route: str, turn: asyncio.Lock) -> _Handler:
    async def answer(request: web.Request) -> web.Response:
        writer, body = Writer(writer_name(request), request.remote), await request.read()
        async with turn:  # were each to wait for the store in a thread, they would leave none to those that read
            line = await asyncio.to_thread(writes.take, route, body, request.match_info, writer)
        return web.Response(body=msgspec.json.encode(line), content_type="application/json")

    return answer


def _exporter(writes: Writes, route: str, turn: asyncio.Lock) -> _Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        writer, body = Writer(writer_name(request), request.remote), await request.read()
        async with turn:
            lines = await asyncio.to_thread(writes.export, route, body, writer)
        name = f"{route.rpartition('/')[2]}.jsonl"
        sent = web.StreamResponse(headers={"Content-Disposition": f'attachment; filename="{name}"'})
        sent.content_type = "application/x-ndjson"
        await sent.prepare(request)
        try:
            while (line := await asyncio.to_thread(next, lines, None)) is not None:
                await sent.write(line)
        except AgentLayerError as error:  # too late for an answer: a file that breaks off must not look whole
            log.warning("view export broke off route=%s error=%s", route, error)
            if request.transport is not None:
                request.transport.abort()
            return sent
        await sent.write_eof()
        return sent

    return answer


def _refuse(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


async def _link_scripts(_: web.Application) -> None:
    """Link what the first tab asks for before it asks."""
    for name in SCRIPTS:
        await asyncio.to_thread(find_file, name)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
