"""The reported outcome of an agent run."""

import asyncio

import pytest

from agent_layer.recorder import open_recorder
from agent_layer.schema.task import Limits, Task
from agent_layer.schema.trace import TraceContext
from envs.failures import Ending
from envs.hosts.agent_run import AgentRun
from envs.progress import Progress
from tracer import Rollout

from ...waiting import scaled


@pytest.fixture
def rollout(settings):
    recorder = open_recorder(settings, ships=False)
    trace = TraceContext(trace_id="0" * 31 + "1", span_id="0" * 15 + "1")
    yield Rollout(trajectory_id="r-0", rollout_id="r", attempt=0, run="r", trace=trace, sink=recorder)
    recorder.close()


@pytest.mark.parametrize("left_seconds", [0.0, 0.01])
async def test_an_agent_that_goes_on_with_little_time_left_is_ended_with_the_limit_of_its_task(rollout, left_seconds):
    async def agent(_task, _rollout):
        await asyncio.sleep(600)

    async def judge_time():
        return Ending(status="failed", cause="user", error="its time is over")

    task = Task(id="t", run="r", limits=Limits(wall_seconds=5.0))
    ran = await AgentRun(agent, task, rollout, left_seconds, Progress(lambda: None), judge_time).wait(scaled(60))

    assert ran.ending == await judge_time()
