"""Responses beside ``POST /v1/responses``: those that are stored, compaction, and the socket that Codex tries first.

On a socket each message ``response.create`` is a call as any other, and its events come one in a frame. Messages of one
``stream_id`` are answered one after the other, those of several side by side. A client that closes the socket leaves
its calls, which end as any call whose client hangs up.

How much a socket sends is known once it was read. So what the sockets of a rollout read at once is bounded by their
number and the size of a message, and is as much as its rollout may hold; what was read is held until it is answered.
"""

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, hdrs, web
from multidict import CIMultiDict

from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import BODY_BOUNDS, in_background
from agent_layer.gateway.dialects.base import Exchange
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.dialects.response_memory import delete_response, read_input_items, read_response
from agent_layer.gateway.dialects.responses import Compaction, SocketResponses
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.errors import REFUSALS, ErrorAnswers, as_json
from agent_layer.gateway.http.model_routes import answer_request, make_door
from agent_layer.gateway.rollouts.body_quota import HeldBytes
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.schema import (
    CALL_HEADER,
    UNREADABLE,
    JsonObject,
    as_json_object,
    check_bounds,
    mend_surrogates,
    new_id,
)

_OF_ONE_CALL: Final = (CALL_HEADER, "idempotency-key", "x-stainless-retry-count", hdrs.CONTENT_ENCODING)
"""Headers that name one call: on a socket they would make one call of all."""
_MAX_WAITING: Final = 64
"""Messages of one socket that wait or are answered at the same time."""
_MAX_SOCKETS: Final = 16
"""Open sockets of one rollout."""
_OK: Final = 200
_MAX_STREAM_ID_LENGTH: Final = 256
"""Each event of an answer repeats the name of its stream."""
_MAX_PAGE: Final = 100
"""Most items of one page of a list."""


class _Message(msgspec.Struct):
    """What is read of a message before its dialect reads it."""

    type: str
    stream_id: str | None = None
    generate: bool | None = None


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response that is not stored any more."""

    id: str
    object: str = "response"
    deleted: bool = True


@dataclass(frozen=True, kw_only=True)
class ResponseRoutes:
    """Receives what OpenAI's clients ask of responses beside new ones."""

    access: Access
    calls: Calls
    errors: ErrorAnswers
    sockets: "set[web.WebSocketResponse]" = field(default_factory=set["web.WebSocketResponse"])
    """Those that are open."""

    def routes(self) -> list[web.RouteDef]:
        """Addresses."""
        one = "(?P<response_id>[^/]++)"
        return [
            route
            for below in ("/r/{trajectory_id}", "")
            for route in (
                web.get(below + make_door("responses"), self._open_socket),
                web.post(below + make_door("responses", "compact"), self._compact),
                web.get(below + make_door("responses", one), self._show),
                web.delete(below + make_door("responses", one), self._delete),
                web.get(below + make_door("responses", one, "input_items"), self._list_input),
            )
        ]

    async def close_sockets(self, _: web.Application) -> None:
        """Close the sockets of a gateway that stops: what they wait for would hold it up."""
        for socket in list(self.sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the gateway stops")

    async def _compact(self, request: web.Request) -> web.StreamResponse:
        rollout, is_operator = self.access.enter_as(request)
        return await answer_request(self.calls, rollout, request, Compaction(), is_operator=is_operator)

    async def _show(self, request: web.Request) -> web.Response:
        rollout = self.access.enter(request)
        if request.query.get("stream") == "true":
            raise RefusedError(
                400, "not_served", f"{request.method} {request.path}: events are not stored; read it without stream"
            )
        return as_json(read_response(rollout.history.answers.memory, request.match_info["response_id"]))

    async def _delete(self, request: web.Request) -> web.Response:
        rollout, response_id = self.access.enter(request), request.match_info["response_id"]
        delete_response(rollout.history.answers.memory, response_id)
        return as_json(DeletedResponse(id=response_id))

    async def _list_input(self, request: web.Request) -> web.Response:
        rollout, query = self.access.enter(request), request.query
        items = read_input_items(rollout.history.answers.memory, request.match_info["response_id"])
        items = items if query.get("order") == "asc" else items[::-1]
        ids = [str(item["id"]) for item in items]
        begin = ids.index(query["after"]) + 1 if query.get("after") in ids else 0
        limit = query.get("limit", "20")
        is_number = limit.isdecimal() and len(limit) < _MAX_PAGE
        end = begin + (min(max(int(limit), 1), _MAX_PAGE) if is_number else _MAX_PAGE)  # an empty page would go on
        page = items[begin:end]
        return as_json(
            {
                "object": "list",
                "data": page,
                "first_id": ids[begin] if page else None,
                "last_id": ids[begin + len(page) - 1] if page else None,
                "has_more": end < len(items),
            }
        )

    async def _open_socket(self, request: web.Request) -> web.StreamResponse:
        most = min(request.client_max_size, self.calls.max_held_bytes // _MAX_SOCKETS)
        socket = web.WebSocketResponse(max_msg_size=most, heartbeat=self.calls.settings.header_seconds)
        if not socket.can_prepare(request):
            raise web.HTTPMethodNotAllowed(request.method, [hdrs.METH_POST])
        rollout = self.access.enter(request)
        with self._count(rollout, socket):
            await socket.prepare(request)
            await ResponseSocket(routes=self, request=request, socket=socket, rollout=rollout).serve()
        if socket.close_code == WSCloseCode.MESSAGE_TOO_BIG:
            sentence = f"expected a message of at most {most} bytes, found a larger one; send it by POST"
            self.errors.refuse(request, RefusedError(413, "request_too_large", f"socket: {sentence}"))
        return socket

    @contextmanager
    def _count(self, rollout: LiveRollout, socket: web.WebSocketResponse) -> Generator[None]:
        """Count a socket as open during the block.

        Raises: RefusedError: its rollout has as many as it may.
        """
        if rollout.bodies.num_sockets >= _MAX_SOCKETS:
            raise RefusedError(
                429,
                "too_many_sockets",
                f"rollout {rollout.trajectory_id}: expected at most {_MAX_SOCKETS} open sockets, found all of them;"
                " close one, share one among streams (stream_id), or ask by POST",
            )
        rollout.bodies.num_sockets += 1
        self.sockets.add(socket)
        try:
            yield
        finally:
            self.sockets.discard(socket)
            rollout.bodies.num_sockets -= 1


@dataclass(slots=True)
class SocketClient:
    """The client of one message on a socket; see ``Client``."""

    request: web.Request
    """Opened the socket."""
    socket: web.WebSocketResponse
    message: bytes
    headers: Mapping[str, str]

    @property
    def method(self) -> str:
        """See Client."""
        return self.request.method

    @property
    def path(self) -> str:
        """See Client."""
        return self.request.path

    @property
    def max_messages(self) -> int:
        """See Client."""
        return self.request.app[BODY_BOUNDS].messages

    @property
    def size_bytes(self) -> int:
        """See Client; nothing more than what the socket holds already."""
        return 0

    @property
    def is_gone(self) -> bool:
        """See Client."""
        return self.socket.closed or self.request.transport is None

    async def read(self) -> bytes:
        """See Client."""
        bounds, subject = self.request.app[BODY_BOUNDS], f"message on {self.path}"
        await in_background(len(self.message), lambda: check_bounds(self.message, bounds, subject))
        return self.message

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begin nothing: the socket is open."""

    async def send(self, piece: bytes) -> None:
        """Send events, each in a frame of its own."""
        for line in piece.split(b"\n"):
            if line:
                await self.socket.send_str(line.decode())


class _StoppedError(Exception):
    """A call was stopped whose client waits for the rest of its answer, which only the end of the socket can tell."""


@dataclass(slots=True, kw_only=True)
class ResponseSocket:
    """One socket, from its opening to its end."""

    routes: ResponseRoutes
    request: web.Request
    """Opened it."""
    socket: web.WebSocketResponse
    rollout: LiveRollout
    """Rollout of its opening, whose quota holds what was read."""
    name: str = field(default_factory=new_id)
    """Under which what is not to be stored is remembered."""
    _headers: Mapping[str, str] = field(init=False)
    _streams: dict[str | None, asyncio.Task[None]] = field(default_factory=dict[str | None, asyncio.Task[None]])
    """The last message of each stream that is not answered yet."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """All that are not."""

    def __post_init__(self) -> None:
        """Keep the headers that hold for each message."""
        self._headers = headers = CIMultiDict(self.request.headers)
        for name in _OF_ONE_CALL:
            headers.popall(name, None)

    async def serve(self) -> None:
        """Answer messages until the client closes the socket, or sends none for the setting ``idle_seconds``."""
        try:
            async with asyncio.TaskGroup() as group:
                while (text := await self._receive()) is not None:
                    await self._take(text, group)
                for task in self._tasks:
                    task.cancel()
        except* _StoppedError:
            await self.socket.close(code=WSCloseCode.INTERNAL_ERROR, message=b"the call was stopped")
        finally:
            await self.socket.close()

    async def _receive(self) -> bytes | None:
        """Return the next message; None: the socket is closed, or was quiet for too long while no answer was due."""
        message = None
        while message is None:
            try:
                message = await self.socket.receive(timeout=self.routes.calls.settings.idle_seconds)
            except TimeoutError:
                if not self._tasks:
                    return None
        if message.type is WSMsgType.BINARY:
            return bytes(message.data)
        return str(message.data).encode() if message.type is WSMsgType.TEXT else None

    async def _take(self, text: bytes, group: asyncio.TaskGroup) -> None:
        """Let a message be answered once those before it in its stream are."""
        try:
            message = msgspec.json.decode(mend_surrogates(text), type=_Message)  # of texts, too, that it passes over
        except UNREADABLE as error:
            await self._send(400, {"code": "invalid_message", "message": f"message: {error}; correct it"}, None)
            return
        if message.type == "response.processed":
            return  # Codex reports that it has read an answer
        try:
            held = self._accept(message, len(text))
        except RefusedError as error:
            known = len(message.stream_id or "") <= _MAX_STREAM_ID_LENGTH
            stream_id = message.stream_id if known else None
            await self._send(error.status, {"code": error.code, "message": error.message}, stream_id)
            return
        task = group.create_task(self._answer_after(self._streams.get(message.stream_id), message, text))
        self._streams[message.stream_id] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: held.shrink(0))

    def _accept(self, message: _Message, num_bytes: int) -> HeldBytes:
        """Hold the bytes of a message. Raises: RefusedError: it is none that is answered, or there is no room."""
        held, most = self.rollout.bodies, self.routes.calls.max_held_bytes
        if message.type != "response.create":
            sentence = f"message: expected type response.create, found {message.type[:64]!r}"
            raise RefusedError(400, "unknown_message", sentence)
        if len(message.stream_id or "") > _MAX_STREAM_ID_LENGTH:
            sentence = f"message: expected a stream_id of at most {_MAX_STREAM_ID_LENGTH} characters"
            raise RefusedError(400, "stream_id_too_long", sentence)
        if len(self._tasks) >= _MAX_WAITING:
            sentence = f"socket: {len(self._tasks)} messages wait; read their answers first"
            raise RefusedError(429, "too_many_messages", sentence)
        if (accepted := held.try_hold(num_bytes, most)) is None:
            sentence = (
                f"socket: expected room for {num_bytes} bytes, found {held.num_bytes} of {most} bytes held by other"
            )
            sentence += " requests of its rollout; read their answers first"
            raise RefusedError(429, "too_many_messages", sentence)
        return accepted

    async def _answer_after(self, before: asyncio.Task[None] | None, message: _Message, text: bytes) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            await self._answer(message, text)
        except asyncio.CancelledError:
            if self.socket.closed or self.request.transport is None:
                raise
            raise _StoppedError from None
        finally:
            if self._streams.get(message.stream_id) is asyncio.current_task():
                del self._streams[message.stream_id]

    async def _answer(self, message: _Message, text: bytes) -> None:
        routes, client = self.routes, SocketClient(self.request, self.socket, text, self._headers)
        dialect = SocketResponses(socket=self.name, stream_id=message.stream_id)
        try:
            rollout, is_operator = routes.access.enter_as(self.request)  # of now: it may be closed, or elsewhere
            if message.generate is False:
                events = await self._warm_up(rollout, client, dialect, is_operator=is_operator)
                with suppress(ConnectionError):
                    await client.send(events)
                return
            whole = await routes.calls.answer(rollout, client, dialect, is_operator=is_operator)
        except REFUSALS as error:
            whole = routes.errors.refuse(self.request, error)
        except Exception as error:  # noqa: BLE001  # a fault of the gateway: this message fails, as a request would
            whole = routes.errors.fail(self.request, error)
        if whole is None:
            return
        body = whole.body if isinstance(whole.body, bytes) else b""
        if whole.status == _OK:
            with suppress(ConnectionError):
                await client.send(body)
            return
        await self._send(whole.status, as_json_object(msgspec.json.decode(body).get("error")), message.stream_id)

    async def _warm_up(
        self, rollout: LiveRollout, client: SocketClient, dialect: SocketResponses, *, is_operator: bool
    ) -> bytes:
        """Return the events of a message that generates nothing: the next one continues it, and sends the rest."""
        rollout.check_is_open()
        body, calls = await client.read(), self.routes.calls

        def read() -> ChatRequest:
            return calls.read_question(rollout, dialect, body, is_operator=is_operator)

        source = await in_background(len(body), read)
        return dialect.warm_up(
            Exchange(
                request=source,
                memory=rollout.history.answers.memory,
                call_id=f"warm-{new_id()}",
                model=source.model,
                at=int(time.time()),
            )
        )

    async def _send(self, status: int, error: JsonObject, stream_id: str | None) -> None:
        """Send an error, in both shapes that clients read: wrapped with its status, and flat as in a stream."""
        named = {} if stream_id is None else {"stream_id": stream_id}
        flat = {name: error.get(name) for name in ("code", "message", "param")}
        event = {"type": "error", "status": status, "error": error, "sequence_number": 0, **flat, **named}
        with suppress(ConnectionError):
            await self.socket.send_str(msgspec.json.encode(event).decode())
