"""Fixtures of workers: real queue, gateway, shipper and store; the engine is scripted."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import openai
import pytest
from aiohttp import web

from agent_layer.dispatcher import Dispatcher
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.gateway.app import build_app
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from envs.agents import CommandTarget, make_target
from envs.worker.service import WorkOptions, open_worker

from ...waiting import until

RUN = "default"


@dataclass(frozen=True, kw_only=True)
class WorkerHarness:
    """What a test needs around a worker."""

    settings: Settings
    engine: ScriptedEngine
    dispatcher: Dispatcher
    store: Store

    @asynccontextmanager
    async def worker(self, agent, *, name="m:agent", **options):
        """Work in this loop for as long as the block does; the agent runs here, if it is a name in a host, and if it is
        a list as that command.
        """
        with ThreadPoolExecutor(4) as pool:
            match agent:
                case str():
                    name, target = agent, None
                case list():
                    target = CommandTarget(agent)
                case _:
                    target = make_target(agent, name)
            options = WorkOptions(agent=name, target=target, **options)
            async with open_worker(self.settings, options, pool) as worker:
                working = asyncio.create_task(worker.work())
                try:
                    yield worker
                finally:
                    worker.stop()
                    await working

    async def run(self, agent, *tasks, **options):
        """Submit the tasks, work until they have ended, and give their trajectories, oldest first."""
        async with self.worker(agent, **options):
            groups = await asyncio.to_thread(self.dispatcher.submit, list(tasks))
            states = await asyncio.to_thread(self.dispatcher.wait, groups, 60)
        assert all(group.is_closed for group in states)
        return await self.trajectories(sum(group.num_accepted for group in states))

    async def trajectories(self, num_accepted):
        """All that there are; logs are shipped side by side, so that one may be accepted before another is whole."""
        await until(lambda: self._have_ended(num_accepted))
        return [self.store.get(row.trajectory_id) for row in self.store.query(order="oldest", limit=1000).items]

    def _have_ended(self, num_accepted):
        rows = self.store.query(limit=1000).items
        return sum(row.accepted for row in rows) >= num_accepted and all(row.status in FINAL_STATUSES for row in rows)


@pytest.fixture
async def harness(settings, redis, keys):
    mine = settings.model_copy(
        update={
            "api_key": "operator-key",
            "connect_seconds": 20.0,
            "retry_base_seconds": 0.02,
            "heartbeat_seconds": 0.1,
            "stop_seconds": 5.0,
        }
    )
    async with serve(ScriptedEngine()) as engine, serve_gateway(mine, redis, keys, engine) as url:
        mine = mine.model_copy(update={"gateway_url": url})
        with open_store(mine).redis as connection:
            yield WorkerHarness(
                settings=mine, engine=engine, dispatcher=Dispatcher(connection, mine), store=open_store(mine)
            )
        open_recorder(mine).close()


@asynccontextmanager
async def serve_gateway(settings, redis, keys, engine, port=0):
    about = {"run": RUN, "version": 0, "location": "initial", "logprobs_mode": "processed", "state": "serving"}
    engines = EngineRegistry(redis, keys, settings.gateway_seconds)
    engines.register(Engine(url=engine.url, model=engine.model, epoch=0, **about))
    log = Recorder(settings, lambda: ensure_shipper(settings))
    runner = web.AppRunner(build_app(settings, redis, log), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
    log.close()


def make_task(name="t", **fields):
    """Return a task for any agent: most agents of these tests have no model to call."""
    return Task(**({"id": name, "run": RUN, "input": {"says": "hi"}, "calls_optional": True} | fields))


@pytest.fixture(name="task")
def _task():
    """``task("name", **fields)`` makes a task of the tests' run."""
    return make_task


@pytest.fixture
async def client():
    """Shared by all rollouts, built for an unused address."""
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=2) as client:
        yield client


@pytest.fixture
def chatter(client):
    """An agent of two turns that reports its own reward."""

    async def chatter(task, rollout):
        messages = [{"role": "user", "content": f"{task.input['says']} {rollout.rollout_id}"}]
        for _ in range(2):
            answer = await client.chat.completions.create(model="any", messages=messages)
            messages += [answer.choices[0].message, {"role": "user", "content": "more"}]
        return 0.5

    return chatter
