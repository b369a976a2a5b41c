"""One of two engines is killed under load: no client sees an error, and each question is one step."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from agent_layer.engines.control import EngineControl
from agent_layer.engines.join import register_engine
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.local.operator_key import ensure_api_key
from agent_layer.local.stack import start_gateway
from agent_layer.store.store import open_store

from ...processes import find_pid
from .conftest import post

NUM_ROLLOUTS, NUM_CALLS = 16, 40
SCRIPT = """
import time

def answer(asked):
    return (word for word in slowly())

def slowly():
    time.sleep(0.002)
    yield from ("it", "is", "so")
"""


@pytest.fixture
def engines(settings, redis, tmp_path, wait_until):
    """Two scripted engines, each a process: [(url, pid)]."""
    (tmp_path / "script.py").write_text(SCRIPT)
    with ExitStack() as cleanup:
        ports = [free_port(), free_port()]
        about = ["-m", "agent_layer.local.scripted", "--script", f"{tmp_path}/script.py:answer"]
        started = [
            start_supervised([sys.executable, *about, "--port", str(port)], {}, tmp_path / f"{port}.log")
            for port in ports
        ]
        for one in started:
            cleanup.callback(one.stop)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url in urls:
            wait_until(EngineControl(url).is_healthy)
            register_engine(settings, redis, url)
        yield list(zip(urls, map(find_pid, started), strict=True))


def talk(gateway, key, number, answered):
    opened = post(f"{gateway}/rollouts", {"task_id": "t", "run": "r"}, key)
    for call in range(NUM_CALLS):
        body = {"messages": [{"role": "user", "content": f"call {call}"}]}
        reply = post(f"{opened['base_url']}/chat/completions", body, opened["api_key"])
        assert reply["choices"][0]["message"]["content"] == "it is so"
        answered.append(number)
    post(f"{gateway}/rollouts/{opened['rollout_id']}/end", {"reward": 1.0}, key)
    return opened["trajectory_id"]


def test_killed_under_load(settings, engines, wait_until):
    (first, victim), (second, _) = engines
    mine, gateway = start_gateway(ensure_api_key(settings))
    answered = []
    try:
        with ThreadPoolExecutor(NUM_ROLLOUTS) as pool:
            going = [
                pool.submit(talk, mine.gateway_url, mine.api_key, number, answered) for number in range(NUM_ROLLOUTS)
            ]
            wait_until(lambda: len(answered) > NUM_ROLLOUTS * 4)
            os.kill(victim, signal.SIGKILL)
            names = [one.result() for one in going]
    finally:
        gateway.stop()

    store = open_store(settings)
    steps = [step for name in names for step in store.get(name).steps]
    ends = {step.engine for step in steps}
    cut = [step for step in steps if step.status != "ok"]
    moved = [step for step in steps if "engine_changed" in step.findings]
    assert len(steps) == NUM_ROLLOUTS * NUM_CALLS
    assert cut == []
    assert ends == {first, second}
    assert moved
