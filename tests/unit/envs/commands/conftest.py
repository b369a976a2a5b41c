"""Attempts of commands without a worker around them."""

import pytest

from agent_layer.schema.task import Task
from envs.commands.plan import read_last_line
from envs.commands.target import CommandTarget
from tracer.core import Rollout


class Attempts:
    """Runs attempts of one command, and takes what they leave."""

    def __init__(self, plan, options=None, **more):
        self.target = CommandTarget(plan, options, **more)

    async def run(self, name="r-0", then=None, **task):
        """Run an attempt to its end, and a plan behind it in the same place; return the last result."""
        rollout = Rollout(
            trajectory_id=name,
            rollout_id=name.rpartition("-")[0],
            attempt=0,
            run="run",
            sink=None,
            base_url=f"http://127.0.0.1:9/r/{name}/v1",
            api_key="key",
            model="policy",
        )
        task = Task(**({"id": "t", "run": "run", "input": "hi"} | task))
        result = await self.target(task, rollout)
        if then is None:
            return result
        return read_last_line(await self.target.run(task, rollout, lambda _: then, continues=True))

    async def collect(self, *patterns, name="r-0", max_bytes=1 << 20):
        """Take its files, and remove its directories."""
        return await self.target.collect(name, patterns, max_bytes)


@pytest.fixture
async def attempts(tmp_path, monkeypatch):
    """``attempts(plan, options)``: directories are made below ``tmp``, the start directory is ``start``."""
    opened = []
    for name in ("tmp", "start"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr("agent_layer.infra.processes.owned_directories._MAX_PLACE_LENGTH", 1000)
    monkeypatch.chdir(tmp_path / "start")

    def open_attempts(plan, options=None, **more):
        opened.append(Attempts(plan, options, **more))
        return opened[-1]

    yield open_attempts
    for one in opened:
        await one.target.close()
    assert not list((tmp_path / "tmp").iterdir())
