"""Where one of several gateways is gone, the next attempt finds another."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from agent_layer.errors import UnreachableError
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.settings import Settings
from tracer.transport.gateway_client import GatewayClient, ShardedGatewayClient, connect_gateway

GONE = "http://127.0.0.1:9"


@pytest.fixture
def gateway():
    """A gateway that notes what it was asked and knows every rollout."""
    seen = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self):
            body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body))
            opened = {"rollout_id": body.get("rollout_id", "r"), "attempt": body.get("attempt", 0)}
            counted = {"trajectory_id": "t", "started": 1, "ended": 1, "unknown": [], "calls": 1, "seconds": 0.5}
            answer = opened | counted | {"base_url": "", "api_key": "", "model": "", "accepted": True, "reward": 1.0}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(msgspec.json.encode(answer))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def attempts_at(client, rollout_id):
    """Whether each of two attempts could be opened."""
    opened = []
    for attempt in (0, 1):
        try:
            client.open(OpenRequest(task_id="t", rollout_id=rollout_id, attempt=attempt))
        except UnreachableError:
            opened.append(False)
        else:
            opened.append(True)
    return opened


def test_of_two_attempts_one_is_where_a_gateway_lives(gateway):
    client = connect_gateway([gateway[0], GONE], None, connect_seconds=30)

    assert {sum(attempts_at(client, f"r{index}")) for index in range(6)} == {1}


def test_what_was_opened_somewhere_is_closed_and_ended_there(gateway):
    client = ShardedGatewayClient([gateway[0], gateway[0], gateway[0]], None)
    opened = client.open(OpenRequest(task_id="t"))
    client.mark(opened.rollout_id, opened.attempt, "key")
    client.pause(opened.rollout_id, opened.attempt, "key")
    client.close(opened.rollout_id, opened.attempt, key="key", abort=True)
    client.end(opened.rollout_id, attempt=opened.attempt)

    assert [path.split("/")[-1] for path, _ in gateway[1]] == ["rollouts", "mark", "pause", "close", "end"]
    assert gateway[1][0][1]["rollout_id"] == opened.rollout_id


def test_keys_at_a_gateway_that_is_gone_are_not_renewed(gateway):
    client = ShardedGatewayClient([gateway[0], GONE], None, connect_seconds=30)
    names = ["r-0", "r-1"]

    assert len(client.renew(names, 30).unknown) == 1


def test_addresses_are_separated_by_commas():
    settings = Settings(gateway_url="http://a:1/v1/, http://b:2")

    assert settings.gateway_urls == ["http://a:1", "http://b:2"]


def test_one_address_is_one_gateway():
    assert type(connect_gateway(["http://127.0.0.1:1"], None)) is GatewayClient
