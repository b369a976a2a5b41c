"""Fixtures of OpenTelemetry tests: an attempt with every kind of record, and a collector of spans."""

import asyncio
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agent_layer.ingest.app import build_app
from agent_layer.settings import Settings
from tracer.testing import Captured

from ...builders import attempt_with_everything
from ...waiting import join, scaled


class Collector:
    """Takes spans as OpenTelemetry's own messages; ``status`` is what it answers."""

    def __init__(self):
        self.status = 200
        self.spans = []
        self.num_requests = 0
        self.url = ""

    @property
    def names(self):
        return [span.name for span in self.spans]


class _Handler(BaseHTTPRequestHandler):
    collector = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.collector.num_requests += 1
        if self.path == "/v1/traces" and self.collector.status == 200:
            answer = ExportTraceServiceRequest.FromString(body)
            self.collector.spans += [s for r in answer.resource_spans for c in r.scope_spans for s in c.spans]
        self.send_response(self.collector.status if self.path == "/v1/traces" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    collector = Collector()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"collector": collector}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    yield collector
    server.shutdown()
    server.server_close()
    join(thread)


@pytest.fixture
def make_attempt():
    """``make_attempt("x.0-0")`` gives the records of an attempt."""
    return attempt_with_everything


class Receiver:
    """Our own receiver of spans, with its log in memory."""

    key = "ingest-key"

    def __init__(self):
        self.log = Captured()
        self.url = ""

    def post(self, body, content_type="application/x-protobuf", key=None, **headers):
        """Send a request; give (status, body)."""
        attributes = {"content-type": content_type, "x-api-key": self.key if key is None else key} | headers
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=scaled(60))
        with closing(connection):
            connection.request("POST", "/v1/traces", body, attributes)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture(scope="session", name="serve_receiver")
def _serve_receiver():
    """``with serve_receiver() as receiver``: one that is served for as long as the block."""
    return serve_receiver


@pytest.fixture
def receiver():
    with serve_receiver() as receiver:
        yield receiver


@contextmanager
def serve_receiver():
    receiver = Receiver()
    app = build_app(Settings(ingest_key=receiver.key, max_body_bytes=1 << 20, max_body_values=10_000), receiver.log)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(app), loop).result(scaled(60))
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(scaled(60))
        loop.call_soon_threadsafe(loop.stop)
        join(thread)
        loop.close()


async def _serve(app):
    runner = web.AppRunner(app, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner
