import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from agent_layer.errors import BadInputError, LeaseLostError, NotFoundError, NotWholeError, UnreachableError
from agent_layer.schema.task import Limits
from agent_layer.schema.wire.gateway_api import EndedRollout, OpenedRollout, OpenRequest
from tracer.transport.gateway_client import GatewayClient

from ...waiting import join

OPENED = {
    "rollout_id": "r1",
    "attempt": 0,
    "trajectory_id": "r1-0",
    "base_url": "http://127.0.0.1:1/r/r1-0/v1",
    "api_key": "k",
    "model": "m",
    "added_later": True,
}


class AskedServer(HTTPServer):
    """Sends prepared answers and keeps the requests."""

    def __init__(self):
        self.requests = []
        self.answer = (200, json.dumps(OPENED))
        super().__init__(("127.0.0.1", 0), AskedRequest)


class AskedRequest(BaseHTTPRequestHandler):
    server: AskedServer

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, self.headers.get("authorization"), body))
        status, text = self.server.answer
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with AskedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        join(thread)


@pytest.fixture
def client(server):
    return GatewayClient(f"http://127.0.0.1:{server.server_port}/v1/", "operator-key")


def test_opening_says_only_what_is_known(server, client):
    opened = client.open(OpenRequest(task_id="t", limits=Limits(turns=3), owner="worker"))

    assert isinstance(opened, OpenedRollout)
    assert opened.trajectory_id == "r1-0"
    assert server.requests == [
        ("/rollouts", "Bearer operator-key", {"task_id": "t", "limits": {"turns": 3}, "owner": "worker"})
    ]


def test_closing_counts_calls(server, client):
    server.answer = (200, '{"started": 3, "ended": 3, "trajectory_id": "r1-1"}')

    closed = client.close("r1", 1)

    assert (closed.started, closed.ended) == (3, 3)
    assert server.requests[0][0] == "/rollouts/r1/close"
    assert server.requests[0][2] == {"attempt": 1}


def test_a_holder_names_its_key_so_that_only_it_marks_pauses_and_closes(server, client):
    server.answer = (200, '{"trajectory_id": "r1-1", "calls": 2, "seconds": 0.5, "started": 2, "ended": 2}')

    marks = [client.mark("r1", 1, "key"), client.pause("r1", 1, "key")]
    client.close("r1", 1, key="key", abort=True)

    assert [(mark.calls, mark.seconds) for mark in marks] == [(2, 0.5)] * 2
    holder = {"attempt": 1, "key": "key"}
    assert [(path, body) for path, _, body in server.requests] == [
        ("/rollouts/r1/mark", holder),
        ("/rollouts/r1/pause", holder),
        ("/rollouts/r1/close", {**holder, "abort": True}),
    ]


def test_ending_tells_whether_it_counts(server, client):
    ended = EndedRollout(trajectory_id="r1-0", accepted=False, reward=None, started=2, ended=2)
    server.answer = (200, json.dumps(msgspec.to_builtins(ended)))

    assert client.end("r1", status="failed") == ended
    assert server.requests[0][2] == {"status": "failed"}


@pytest.mark.parametrize(
    ("status", "text", "error", "sentence"),
    [
        (404, '{"error": {"message": "rollout r1 is not known"}}', NotFoundError, "rollout r1 is not known"),
        (409, '{"error": "two calls still run"}', NotWholeError, "two calls still run"),
        (412, '{"error": {"message": "another went on"}}', LeaseLostError, "another went on"),
        (400, "no such field", BadInputError, "no such field"),
        (401, "who are you", UnreachableError, "who are you"),
        (429, "slow down", UnreachableError, "slow down"),
        (500, "", UnreachableError, "(no text)"),
    ],
)
def test_a_refusal_keeps_its_sentence(server, client, status, text, error, sentence):
    server.answer = (status, text)

    with pytest.raises(error) as raised:
        client.close("r1", 0)

    assert str(raised.value).endswith(sentence)


def test_nobody_at_the_address_is_one_sentence():
    with pytest.raises(UnreachableError, match=r"gateway http://127\.0\.0\.1:1: expected an answer"):
        GatewayClient("http://127.0.0.1:1", None).close("r1", 0)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BadInputError, match="AGENT_LAYER_GATEWAY_URL"):
        GatewayClient(url, None)
