"""Fixtures of placed workers: an agent, and the workers' places."""

from pathlib import Path

import pytest

from ...processes import read_command

AGENT = """
import asyncio, pathlib
import openai

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")

async def agent(task, rollout):
    for turn in range(2):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"turn {turn}"}])
        await asyncio.sleep(0.05)
    while (task.input or {}).get("waits") and not pathlib.Path(task.id).exists():
        await asyncio.sleep(0.01)
    return 1.0
"""


@pytest.fixture(autouse=True)
def _agent(write_module):
    write_module("agent", AGENT)


@pytest.fixture
def worker_pids(tmp_path):
    """``worker_pids()``: processes that work here for this test, without leashes and supervisors."""

    def find() -> set[int]:
        pids = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
        return {
            pid
            for pid in pids
            if "--workers=1" in read_command(pid) and "--grace" not in str(read_command(pid)) and _is_in(pid, tmp_path)
        }

    return find


def _is_in(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == directory
    except OSError:
        return False


@pytest.fixture
def names(dispatcher):
    """``names()``: workers that the dispatcher knows."""
    return lambda: {worker.worker for worker in dispatcher.workers()}
