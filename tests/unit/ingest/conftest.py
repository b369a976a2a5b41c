"""This file holds what tests of OpenTelemetry share: an attempt with everything in it, and a collector of spans."""

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
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState, Usage
from agent_layer.schema.wire.trace import TraceContext
from agent_layer.settings.settings import Settings
from tracer.testing import Captured

TRACE = "0af7651916cd43dd8448eb211c80319c"
OUTER = "b7ad6b7169203331"
MESSAGES = (b'{"role":"system","content":"be brief"}', b'{"role":"user","content":"what"}')
TOOLS = b'[{"type":"function","function":{"name":"look"}}]'
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}]


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
            told = ExportTraceServiceRequest.FromString(body)
            self.collector.spans += [s for r in told.resource_spans for c in r.scope_spans for s in c.spans]
        self.send_response(self.collector.status if self.path == "/v1/traces" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    collector = Collector()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"collector": collector}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    yield collector
    server.shutdown()
    server.server_close()
    thread.join(5)


def attempt_of(tid, at=100.0, score=1.0):
    """An attempt with two calls of two agents, one of two choices, a tool, rewards of every scope, and an end."""
    own = {"trajectory_id": tid, "run": "r"}
    hashes = [content_hash(body) for body in MESSAGES]
    first = {**own, "call_id": f"{tid}.a", "source": "gateway", "agent": "solver"}
    second = {**own, "call_id": f"{tid}.b", "source": "gateway", "agent": "critic"}
    asked = Action(
        message={"role": "assistant", "content": None, "tool_calls": CALLS},
        response_token_ids=TokenIds([3, 4]),
        logprobs=Logprobs([-0.5, -0.25]),
        policy_versions=[(2, 2)],
        finish_reason="tool_calls",
    )
    said = [Action(message={"role": "assistant", "content": text}, finish_reason="stop") for text in ("yes", "no")]
    return [
        AttemptStarted(
            **own,
            rollout_id=tid[:-2],
            attempt=0,
            task_id="t",
            started_at=at,
            agent="solver",
            trace=TraceContext(trace_id=TRACE, span_id=OUTER, state="vendor=1"),
        ),
        *(Content(trajectory_id=tid, hash=content_hash(body), body=body) for body in (*MESSAGES, TOOLS)),
        StepPart(
            **first,
            phase="start",
            at=at + 1,
            span_id="00f067aa0ba902b7",
            state=StepState(messages=hashes, tools=content_hash(TOOLS)),
            sampling_applied={"temperature": 0.7, "stop": "END", "seed": 5, "response_format": {"type": "text"}},
            model="policy",
            engine="http://127.0.0.1:8000",
        ),
        StepPart(
            **first,
            phase="end",
            at=at + 2,
            actions=[asked],
            prompt=PromptDelta(delta=TokenIds([1, 2])),
            usage=Usage(prompt_tokens=2, response_tokens=2),
            capture_level="tokens",
            status="ok",
        ),
        Observation(
            **own,
            observation_id=f"{tid}.o",
            name="look",
            at=at + 3,
            call_id=f"{tid}.a",
            agent="solver",
            arguments={"a": 1},
            output="found it",
            status="ok",
            duration_seconds=0.5,
        ),
        StepPart(**second, phase="start", at=at + 4, model="policy", role="aux", state=StepState(messages=hashes)),
        StepPart(**second, phase="end", at=at + 5, actions=said, status="ok", capture_level="text"),
        Reward(**own, reward_id=f"{tid}.0", at=at + 6, name="found", score=score, source="rule"),
        Reward(**own, reward_id=f"{tid}.1", at=at + 6, name="format", score=0.25, scope="step", step=0),
        Outcome(**own, status="completed", ended_at=at + 7),
        Accepted(**own, rollout_id=tid[:-2], accepted_at=at + 8),
    ]


@pytest.fixture
def make_attempt():
    """``make_attempt("x.0-0")`` gives the records of an attempt."""
    return attempt_of


class Receiver:
    """Our own receiver of spans, with its log in memory."""

    key = "ingest-key"

    def __init__(self):
        self.log = Captured()
        self.url = ""

    def post(self, body, content_type="application/x-protobuf", key=None, **headers):
        """Send a request; give (status, body)."""
        told = {"content-type": content_type, "x-api-key": self.key if key is None else key} | headers
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        with closing(connection):
            connection.request("POST", "/v1/traces", body, told)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture(scope="session")
def serve_receiver():
    """``with serve_receiver() as receiver``: one that is served for as long as the block."""
    return _serve_receiver


@pytest.fixture
def receiver():
    with _serve_receiver() as receiver:
        yield receiver


@contextmanager
def _serve_receiver():
    receiver = Receiver()
    app = build_app(Settings(ingest_key=receiver.key, max_body_bytes=1 << 20), receiver.log)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(app), loop).result(60)
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _serve(app):
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner
