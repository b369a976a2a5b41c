"""What an agent can reach: its gateway, and nothing behind it. Tried as a worker's agent and without any network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TRIES = """
import json, os, socket, sys, urllib.error, urllib.request

base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
root = base.partition("/r/")[0]
controls = "collective_rpc pause resume reset_prefix_cache metrics engines rollouts tokenize".split()

def ask(url):
    request = urllib.request.Request(url, b"{}", {"Authorization": "Bearer " + key})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return "unreachable"

def connect(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        return "connected"
    except OSError:
        return "unreachable"

places = (root, base, f"{base}/..", f"{base}/../..")
asked = {url: ask(url) for url in (f"{place}/{control}" for control in controls for place in places)}
print(json.dumps({"asked": asked, "servers": [connect(one) for one in sys.argv[1:]], "environment": dict(os.environ)}))
"""


CONNECT_AS_NOBODY = """
import os, socket, sys

client = socket.socket(socket.AF_UNIX)
os.setgid(65534)
os.setuid(65534)
client.connect(sys.argv[1])
"""


@pytest.fixture
def alone():
    """A command that runs another in user and network namespaces of its own."""
    command = ["unshare", "-Urn"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("this machine gives no user and network namespaces to programs without rights")
    return command


async def run_command(harness, task, command):
    (trajectory,) = await harness.run(command, task())
    return trajectory.outcome.result


async def test_an_agent_reaches_no_control_and_is_told_of_no_server(harness, task, s3_endpoint):
    found = await run_command(harness, task, [sys.executable, "-c", TRIES])

    assert set(found["asked"].values()) <= {401, 404, 405}
    assert not harness.engine.controls
    answer = json.dumps(found["environment"])
    settings = harness.settings
    for secret in (settings.api_key, harness.engine.url, settings.redis_url.removeprefix("unix://"), s3_endpoint):
        assert secret not in answer
    assert not [name for name in found["environment"] if name.startswith("AWS_")]


async def test_an_agent_without_a_network_reaches_no_server(harness, task, s3_endpoint, alone):
    servers = [url.partition("://")[2] for url in (harness.engine.url, s3_endpoint, harness.settings.gateway_url)]

    found = await run_command(harness, task, [*alone, sys.executable, "-c", TRIES, *servers])

    assert found["servers"] == ["unreachable"] * 3
    assert set(found["asked"].values()) == {"unreachable"}
    assert not harness.engine.controls


def test_redis_is_behind_a_socket_that_others_cannot_open(redis, settings):
    socket_path = Path(settings.redis_url.removeprefix("unix://"))

    assert redis.config_get("port") == {"port": "0"}
    assert socket_path.parent.stat().st_mode & 0o077 == 0
    if os.getuid() == 0:
        tried = [sys.executable, "-c", CONNECT_AS_NOBODY, str(socket_path)]
        ran = subprocess.run(tried, capture_output=True, text=True, check=False)
        assert "PermissionError" in ran.stderr
