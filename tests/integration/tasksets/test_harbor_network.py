"""The network of a Harbor task: none, or HTTP through a proxy that reaches public addresses only."""

import asyncio
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from envs.sandbox import PoolOptions, SandboxSpec, open_pool
from envs.tasksets.harbor.egress import NETWORK_VARIABLES, is_public, open_network

from ...boxes import require_kind

FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end="")
except Exception as error:
    print(type(error).__name__, getattr(error, "code", ""), end="")
"""
CONNECT = """
import socket, sys
with socket.create_connection(("127.0.0.1", 47114), 10) as end:
    end.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\nGET /simple HTTP/1.0\\r\\n\\r\\n".encode())
    answer = b""
    while chunk := end.recv(9999):
        answer += chunk
print(answer.decode().splitlines()[0], answer.endswith(b"a package"), end="")
"""


@pytest.fixture(autouse=True)
def _boxes():
    require_kind("namespace", "session")


@pytest.fixture
def index(tmp_path):
    """A package index of this machine, by its port."""
    (tmp_path / "simple").write_text("a package")
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def run(env, programs, is_allowed):
    """Return what programs print in a box with these variables."""

    async def run_all():
        async with open_pool(PoolOptions(ready_per_spec=0)) as pool:
            box = await pool.take(SandboxSpec(env=env), owner="test")
            async with open_network(box, is_allowed):
                ran = [await box.exec(["python3", "-c", *program], seconds=60) for program in programs]
            after = await box.exec(["python3", "-c", FETCH, "http://localhost.test/"], seconds=60)
            return [one.stdout.decode() for one in [*ran, after]]

    return asyncio.run(run_all())


def test_a_box_reaches_what_its_proxy_allows_and_nothing_else(index):
    variables = NETWORK_VARIABLES | {"no_proxy": "", "NO_PROXY": ""}
    address = f"http://127.0.0.1:{index}/simple"
    programs = [(FETCH, address), (CONNECT, f"127.0.0.1:{index}"), (FETCH, "http://127.0.0.2/"), (CONNECT, "x")]

    allowed = run(variables, programs, lambda address: address == "127.0.0.1")
    public = run(variables, programs[:2], is_public)
    closed = run({}, programs[:1], lambda _: True)

    assert allowed[:2] == ["a package", "HTTP/1.1 200 OK True"]
    assert allowed[2] == "HTTPError 403"
    assert allowed[3].startswith("HTTP/1.1 403")
    assert public[:2] == ["HTTPError 403", "HTTP/1.1 403 Forbidden False"]
    assert [one[-1].strip() for one in (allowed, public)] == ["URLError", "URLError"]
    assert closed[0].startswith("URLError")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "fd00::1", "224.0.0.1",
     "::ffff:127.0.0.1", "100.64.0.1"],
)  # fmt: skip
def test_no_address_of_this_machine_or_its_network_is_public(address):
    assert not is_public(address)
    assert is_public("1.1.1.1")
