"""The runner of a host executes a worker's requests of the same moment in order."""

import asyncio
import socket

from agent_layer.recorder import open_recorder
from agent_layer.schema.task import Task
from agent_layer.schema.trace import TraceContext
from envs.channel import connect
from envs.hosts.agent_runner import AgentRunner
from envs.hosts.host_client import FROM_HOST
from envs.hosts.protocol import Ended, Start, Stop, Stopping


async def test_an_agent_that_is_stopped_in_the_breath_in_which_it_is_started_ends(settings, until):
    async def agent(task, rollout):  # noqa: ARG001  # neither matters
        await asyncio.sleep(600)

    ours, theirs = socket.socketpair()
    runner, heard = AgentRunner(agent, settings, open_recorder(settings, ships=False)), []
    worker = await connect(ours, FROM_HOST, heard.append)
    host = await connect(theirs, FROM_HOST, heard.append)
    runner.attach(host)
    trace = TraceContext(trace_id="0" * 31 + "1", span_id="0" * 15 + "1")
    whose = {"trajectory_id": "r-0", "rollout_id": "r", "attempt": 0, "run": "r", "task": Task(id="t", run="r")}

    runner.on_message(Start(token="1", base_url=None, api_key=None, model=None, trace=trace, **whose))
    runner.on_message(Stop(token="1", why="cancel"))
    await until(lambda: any(isinstance(one, Ended) for one in heard))

    assert any(isinstance(one, Stopping) for one in heard)
    assert [one.status for one in heard if isinstance(one, Ended)] == ["cancelled"]
    worker.close()
    host.close()
    await asyncio.gather(worker.closed, host.closed)
    open_recorder(settings).close()
