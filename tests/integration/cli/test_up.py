"""``up`` and ``serve`` as a user types them: what they print suffices to run an agent and to find what it did."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from agent_layer.engines.policies import list_policies
from agent_layer.errors import UnreachableError
from agent_layer.local.operator_key import ensure_api_key
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.stack import start_gateway
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content
from agent_layer.store.store import open_store
from agent_layer.view import find_page

from ...waiting import read_line, wait_for_exit, wait_until

COMMAND = (sys.executable, "-m", "agent_layer.cli")


def make_environment(settings, **more):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}
    return inherited | settings.environment() | more


@contextmanager
def running(settings, *arguments, **more):
    """Run a command until the block ends; give what it exported."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=make_environment(settings, **more), stdout=subprocess.PIPE, text=True
    )
    exported = {}
    try:
        while "AGENT_LAYER_API_KEY" not in exported:
            line = read_line(process)
            assert line, f"it ended with {process.wait()}"
            exported |= dict(re.findall(r"^export (\w+)=(.*)$", line))
        yield exported
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def leave_log(settings):
    recorder = Recorder(settings)
    name = recorder.append(Content(trajectory_id="r.0-0", hash="h", body=b"1"))
    recorder.close()
    return settings.log_dir / f"{name}.log"


def post(url, body, key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
            return json.load(reply)
    except HTTPError as refused:
        pytest.fail(f"{url}: {refused.read().decode()}")


@pytest.mark.parametrize("command", ["up --no-view --engine {url}/v1", "serve", "serve --processes 2"])
def test_an_agent_without_a_worker_beside_logs_of_a_killed_process(settings, redis, keys, command):
    left = leave_log(settings)
    with serve_in_thread(ScriptedEngine()) as engine:
        how = command.format(url=engine.url).split()
        with running(settings, *how, "--port", "0", AGENT_LAYER_VLLM_URLS=engine.url) as exported:
            gateway, key = exported["AGENT_LAYER_GATEWAY_URL"], exported["AGENT_LAYER_API_KEY"]
            opened = post(f"{gateway}/rollouts", {"task_id": "t1", "run": "r", "group_id": "g"}, key)
            body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
            post(f"{opened['base_url']}/chat/completions", body, opened["api_key"])
            ended = post(f"{gateway}/rollouts/{opened['rollout_id']}/end", {"reward": 0.5}, key)
            wait_until(lambda: not left.exists(), what="the log of the killed process to be shipped")
            assert find_page(settings) is None

    assert (ended["accepted"], ended["reward"]) == (True, 0.5)
    trajectory = open_store(settings).get(opened["trajectory_id"])
    (step,) = trajectory.steps
    assert list(step.prompt_token_ids) == engine.calls[-1].prompt_token_ids
    assert list(step.action.response_token_ids) == engine.calls[-1].token_ids[0]
    assert trajectory.reward == 0.5
    assert trajectory.accepted.group_id == "g"
    assert [policy.number for policy in list_policies(redis, keys, "r")] == [0]


@pytest.fixture
def strange_gateway():
    """Another program that answers as a gateway does; gives its port."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_up_exports_no_gateway_of_others(settings, agent_layer, strange_gateway):
    status, printed, errors = agent_layer("up", "--engine", "http://127.0.0.1:9", "--port", strange_gateway)

    assert (status, printed) == (2, "")
    assert f"gateway port {strange_gateway}: expected to be free" in errors
    assert not (settings.dir / "logs" / "gateway.log").exists()


def test_a_gateway_whose_port_was_taken_meanwhile_is_not_waited_for(settings, strange_gateway):
    with pytest.raises(UnreachableError, match="expected it to serve"):
        start_gateway(ensure_api_key(settings), strange_gateway)
    assert not list((settings.dir / "logs").glob("*.ready"))


@pytest.mark.parametrize("command", ["up --engine {url}", "serve"])
def test_an_engine_without_token_ids_is_refused(agent_layer, monkeypatch, command):
    with serve_in_thread(ScriptedEngine(token_ids=False)) as engine:
        monkeypatch.setenv("AGENT_LAYER_VLLM_URLS", engine.url)
        status, _, errors = agent_layer(*command.format(url=engine.url).split())

    assert status == 2
    assert "token ids" in errors
