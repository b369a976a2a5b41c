"""``agent-layer work`` in tests: as processes of its own, over a real stack."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.stack import Stack, run_stack
from agent_layer.settings import Settings

from .waiting import scaled

__all__ = [
    "ASK",
    "dispatcher",
    "module_stack",
    "pace",
    "shared_stack",
    "stack",
    "start_worker",
    "worker_output",
    "write_module",
]

ASK = """
import aiohttp

async def ask(rollout, text="hi", before=()):
    body = {"model": "m", "messages": [*before, {"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {rollout.api_key}"}
    async with aiohttp.ClientSession(rollout.base_url + "/", headers=headers) as session:
        async with session.post("chat/completions", json=body, raise_for_status=True) as answer:
            return await answer.json()
"""
"""Beginning of agents in processes of their own that ask the model; the official client takes a second to import."""


@pytest.fixture
def pace() -> dict[str, float]:
    """Settings of the stack; a test overrides this fixture to change them."""
    return {"lease_seconds": scaled(5.0), "heartbeat_seconds": 0.2}


@pytest.fixture
def stack(settings: Settings, pace: dict[str, float]) -> Iterator[Stack]:
    """Gateway, Redis and a scripted engine."""
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(settings.model_copy(update=pace), engine.url) as stack:
        yield stack


@pytest.fixture(scope="module")
def module_stack(module_settings: Settings) -> Iterator[Stack]:
    """Like ``stack``, for all tests of a module: leases outlast any test, and heartbeats are frequent."""
    settings = module_settings.model_copy(update={"lease_seconds": 600.0, "heartbeat_seconds": 0.2})
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(settings, engine.url) as stack:
        yield stack


@pytest.fixture
def shared_stack(module_stack: Stack) -> Iterator[Stack]:
    """``module_stack`` with an empty queue: a module whose tests share it returns it from a fixture ``stack``."""
    yield module_stack
    with connect(module_stack.settings) as dispatcher:
        dispatcher.cancel([group.group_id for group in dispatcher.groups()])


@pytest.fixture
def dispatcher(stack: Stack) -> Iterator[Dispatcher]:
    """Of the stack."""
    with connect(stack.settings) as dispatcher:
        yield dispatcher


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """``write_module("agent", text)``: a module that workers find, here and in processes; returns its folder."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> Path:
        (tmp_path / f"{name}.py").write_text(text)
        return tmp_path

    return write


@pytest.fixture
def start_worker(stack: Stack, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """``start_worker("agent:agent", "--slots", "2", **variables)``: in the test's folder; killed when the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "agent_layer.cli", "work", *arguments]
        environment = os.environ | stack.settings.environment() | variables
        with (tmp_path / "said").open("ab") as message:
            started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=message, stderr=message))
        return started[-1]

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def worker_output(tmp_path: Path) -> Callable[[], str]:
    """``said()``: what all processes of ``start_worker`` wrote."""
    return (tmp_path / "said").read_text
