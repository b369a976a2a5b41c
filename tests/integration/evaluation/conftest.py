"""``agent-layer eval`` as users type it, over a real stack."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ...waiting import communicate, scaled

AGENT = '''
import asyncio, json, os, urllib.request
from pathlib import Path

def ask(rollout, text):
    body = {"model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    headers = {"Authorization": f"Bearer {rollout.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{rollout.base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

async def agent(task, rollout):
    """Echoed words are right."""
    answer = await asyncio.to_thread(ask, rollout, task.input["say"])
    return float(answer.split()[-1] == task.input["expected"])

async def gated(task, rollout):
    """Task t0 ends at once, the others wait for a file."""
    while task.id != "t0" and not Path("gate").exists():
        await asyncio.sleep(0.02)
    return await agent(task, rollout)

async def broken(task, rollout):
    """Task t1 fails while there is a file."""
    if task.id == "t1" and Path("broken").exists():
        raise RuntimeError("no such tool")
    return await agent(task, rollout)

async def boxed(task, rollout):
    """Prints more than a log holds, and has a command run in its box."""
    for _ in range(5 << 8):
        os.write(1, bytes(1 << 14))
    async with rollout.sandbox.open(["sleep", "600"]) as process:
        Path("boxed").touch()
        await process.wait()
'''
COMMAND = """
import json, os
task = json.loads(os.environ["AGENT_LAYER_TASK"])
print(json.dumps(0.0 if task["id"] == "t0" else 1.0))
"""


@pytest.fixture
def pace() -> dict[str, float]:
    """Failures are tried again at once, and leases of what was killed lapse soon."""
    return {"lease_seconds": scaled(2.0), "heartbeat_seconds": 0.2, "retry_base_seconds": 0.01}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Agents, and three tasks whose right answer the scripted engine gives."""
    (tmp_path / "eval_agents.py").write_text(AGENT)
    (tmp_path / "command.py").write_text(COMMAND)
    tasks = [
        {"id": f"t{number}", "input": {"say": f"word{number}", "expected": f"word{number}"}} for number in range(3)
    ]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))
    return tmp_path


@pytest.fixture
def start_eval(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``start_eval(settings, "eval_agents:agent", "tasks.jsonl")``; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(settings, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "agent_layer.cli", "eval", *arguments]
        environment = os.environ | settings.environment()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run_eval(start_eval) -> Callable[..., tuple[int, list[dict], str]]:
    """``run_eval(settings, …)``: (exit status, lines of JSON, standard error)."""

    def run(settings, *arguments: str) -> tuple[int, list[dict], str]:
        process = start_eval(settings, "--format", "jsonl", *arguments)
        printed, output = communicate(process, 120)
        return process.returncode, [msgspec.json.decode(line) for line in printed.splitlines()], output

    return run
