"""A server whose shell allows few open files answers beside more connections than that."""

import subprocess
import sys
from contextlib import ExitStack
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from socket import create_connection
from urllib.request import urlopen

import pytest

from ...waiting import read_line, scaled

_FEW, _MANY = 64, 200
_PROGRAM = f"""
import asyncio, resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({_FEW}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from aiohttp import web
from agent_layer.gateway import listen
from agent_layer.gateway import serve_until_stopped
app = web.Application()
app.add_routes([web.get("/", lambda _: answer())])
async def answer(): return web.Response(text="here")
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
asyncio.run(serve_until_stopped(app, [listener], None, 75.0))
"""


@pytest.mark.skipif(
    RLIM_INFINITY != getrlimit(RLIMIT_NOFILE)[1] < 2 * _MANY,
    reason="this machine allows no more open files",
)
def test_idle_connections_beyond_the_soft_limit_keep_nobody_out():
    with (
        subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE) as server,
        ExitStack() as opened,
    ):
        try:
            port = int(read_line(server))
            for _ in range(_MANY):
                opened.enter_context(create_connection(("127.0.0.1", port), timeout=scaled(60)))
            with urlopen(f"http://127.0.0.1:{port}/", timeout=scaled(60)) as answer:
                assert answer.read() == b"here"
        finally:
            server.kill()
