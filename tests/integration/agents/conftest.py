"""A real gateway in a thread, before a scripted engine, for programs that only know its address."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from aiohttp import web

from agent_layer.gateway.app import build_app
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.recorder.log import Recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.store import open_store
from tracer.transport.gateway_client import GatewayClient

from ...waiting import run

OPERATOR = "operator-key"
PROGRAMS = Path(__file__).parent / "programs"
RUNNER = "import runpy, sys\nfor program in sys.argv[1:]:\n    runpy.run_path(program, run_name='__main__')"
NODE_PACKAGES = Path(sys.prefix) / "node" / "node_modules"
"""Where 'make test' puts the libraries of agents in JavaScript."""


def solve(prompt):
    """Ask for the tool where there is one that has not answered yet."""
    if prompt.tools and prompt.messages[-1]["role"] != "tool":
        call = {"name": "add", "arguments": json.dumps({"a": 40, "b": 2})}
        return {"tool_calls": [{"id": "call-1", "type": "function", "function": call}]}
    return f"it is {prompt.text}"


@pytest.fixture
def engine():
    with serve_in_thread(ScriptedEngine(script=solve)) as engine:
        yield engine


@pytest.fixture
def operator(settings):
    """The operator's settings, without the gateway's address."""
    return settings.model_copy(update={"api_key": OPERATOR})


@pytest.fixture
def questions():
    """Bodies of the questions that came to the gateway, as their client sent them."""
    return []


@pytest.fixture
def gateway(operator, redis, engine, register_engine, questions):
    """Settings under which the gateway is found."""
    register_engine(engine, operator)
    log = Recorder(operator, lambda: ensure_shipper(operator))
    app = build_app(operator, redis, log)
    app.middlewares.append(keep_questions(questions))
    with serve_in_thread(ServedApplication(app)) as served:
        yield operator.model_copy(update={"gateway_url": served.url})
    log.close()


def keep_questions(questions):
    @web.middleware
    async def keep(request, handler):
        if request.path.startswith("/r/") and request.can_read_body:
            questions.append(await request.json())
        return await handler(request)

    return keep


class ServedApplication:
    """An application, as something that can be served."""

    def __init__(self, app):
        self.url, self._app = "", app

    def app(self):
        return self._app


@pytest.fixture
def capture(gateway, tmp_path):
    """``capture(program, …)``: run programs of one language in one process and rollout; give output and trajectory."""

    def capture(*programs):
        client = GatewayClient(gateway.gateway_url, gateway.api_key)
        opened = client.open(OpenRequest(task_id="t"))
        output = run_programs(*programs, directory=tmp_path, variables=rollout_variables(opened))
        assert client.end(opened.rollout_id, reward=1.0).accepted
        return output, open_store(gateway).get(opened.trajectory_id)

    return capture


def rollout_variables(opened):
    """Return the environment variables that INTERFACE promises to a command."""
    return {
        "OPENAI_BASE_URL": opened.base_url,
        "OPENAI_API_KEY": opened.api_key,
        "ANTHROPIC_BASE_URL": opened.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": opened.api_key,
    }


def run_programs(*names, directory, variables):
    programs = [PROGRAMS / name for name in names]
    match programs[0].suffix:
        case ".sh":
            command = ["sh", *programs]
        case ".mjs":
            command = ["node", *(beside_packages(program, directory) for program in programs)]
        case _:
            command = [sys.executable, "-c", RUNNER, *programs]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "ANTHROPIC_"))}
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DSPY_CACHEDIR": str(directory), "HOME": str(directory)}
    done = run(command, 200, cwd=directory, env=clean | quiet | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def beside_packages(program, directory):
    """Copy a program to where node finds its libraries: in a folder beside it."""
    if not shutil.which("node") or not NODE_PACKAGES.exists():
        pytest.skip(f"no node on PATH, or no {NODE_PACKAGES}; 'make test' puts that there where npm is installed")
    (directory / "node_modules").symlink_to(NODE_PACKAGES)
    return Path(shutil.copy(program, directory))
