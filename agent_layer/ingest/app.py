"""Web application of ``ingest``, and its route for spans: POST /v1/traces, OTLP over HTTP, gzipped or not."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

from aiohttp import hdrs, web

from agent_layer.ingest.decoding import (
    answer_json,
    answer_protobuf,
    check_protobuf,
    decode_json,
    decode_protobuf,
    refuse_json,
    refuse_protobuf,
)
from agent_layer.ingest.http import REFUSALS, IngestKeys, IngestMemory, describe_refusal, read_body, run_in_thread
from agent_layer.ingest.intake import Intake, IntakeResult, Log
from agent_layer.ingest.ledger import OwnLog
from agent_layer.ingest.logs import LogReceiver
from agent_layer.ingest.spans import ReceivedSpan
from agent_layer.schema import ROLLOUT_HEADER, BodyBounds, check_bounds, check_name, split_trajectory_id
from agent_layer.settings import Settings

_RETRY_SECONDS = "5"
_SPANS_PER_BODY = 10
"""Collectors send many spans at once, each about as large as a request to a model; they are decoded one by one."""

log = logging.getLogger(__name__)


class _Encoding(NamedTuple):
    """One of OTLP's two encodings."""

    decode: Callable[[bytes], list[ReceivedSpan]]
    answer: Callable[[int, str], bytes]
    refuse: Callable[[str], bytes]
    check: Callable[[bytes, BodyBounds, str], None]


_ENCODINGS = {
    "application/x-protobuf": _Encoding(decode_protobuf, answer_protobuf, refuse_protobuf, check_protobuf),
    "application/json": _Encoding(decode_json, answer_json, refuse_json, check_bounds),
}


class _Log(Log, OwnLog, Protocol):
    """Destination of spans and logs; the recorder implements it."""


def build_app(settings: Settings, log: _Log) -> web.Application:
    """Return ``ingest`` as a web application.

    Args:
        settings: ``api_key`` or ``ingest_key`` opens it.
        log: destination of the records.

    Raises: BadInputError: there is no key.
    """
    app = web.Application(client_max_size=settings.max_body_bytes)
    access, memory = IngestKeys(settings), IngestMemory(settings.ingest_bytes)
    spans, logs = _SpanReceiver(settings, access, memory, log), LogReceiver(settings, access, memory, log)
    app.add_routes(
        [
            web.post("/v1/traces", spans.receive),
            web.post("/v1/logs/{namespace}/{name}", logs.receive),
            web.get("/health", _health),
        ]
    )
    app.cleanup_ctx.append(logs.watch_commits)
    return app


async def _health(_: web.Request) -> web.Response:
    """Answer that the server accepts spans and logs."""
    return web.json_response({"status": "ok"})


class _SpanReceiver:
    """Decodes one request after the other and writes it into the log."""

    def __init__(self, settings: Settings, access: IngestKeys, memory: IngestMemory, log: Log) -> None:
        self._access = access
        self._memory = memory
        self._intake = Intake(log, settings.run)
        self._turn = asyncio.Lock()
        self._bounds = BodyBounds(
            values=settings.max_body_values * _SPANS_PER_BODY, depth=settings.max_body_depth, messages=sys.maxsize
        )

    async def receive(self, request: web.Request) -> web.Response:
        """Record the spans of a request; report the number rejected."""
        encoding = _ENCODINGS.get(request.content_type)
        if encoding is None:
            return _respond(request, 415, f"expected {' or '.join(_ENCODINGS)}".encode())
        if not self._access.is_allowed(request):
            return _respond(request, 401, encoding.refuse("ingest: this key is not known; use AGENT_LAYER_INGEST_KEY"))
        try:
            if named := request.headers.get(ROLLOUT_HEADER):
                split_trajectory_id(check_name(named, "trajectory"))
            with self._memory.hold() as held:
                body = await read_body(request, "OTLP request", held)

                def read() -> IntakeResult:
                    encoding.check(body, self._bounds, "OTLP request")
                    return self._intake.add_spans(encoding.decode(body), named)

                async with self._turn:
                    taken = await run_in_thread(read)
        except REFUSALS as error:
            status, reason = describe_refusal(error, "OTLP request", request.client_max_size)
            headers: dict[str, str] | None = {hdrs.RETRY_AFTER: _RETRY_SECONDS} if status == 503 else None
            return _respond(request, status, encoding.refuse(reason), headers)
        if taken.num_rejected:
            log.warning("spans rejected num_rejected=%d first=%s", taken.num_rejected, taken.reason)
        return _respond(request, 200, encoding.answer(taken.num_rejected, taken.reason))


def _respond(request: web.Request, status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, headers=headers, content_type=request.content_type)
