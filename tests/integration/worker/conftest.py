"""Fixtures of workers: real queue, gateway, shipper and store; the engine is scripted."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import openai
import pytest
from aiohttp import web

import envs.worker.worker
from agent_layer.dispatcher import Dispatcher
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.gateway.app import build_app
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from envs.agents import make_target
from envs.commands.target import CommandTarget
from envs.worker.service import WorkOptions, open_worker

from ...boxes import require_kind
from ...waiting import WaitExpired, scaled, until

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
                case CommandTarget():
                    target = agent
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
            groups = await self.submit(*tasks)
            states = await self.wait(groups)
        return await self.trajectories(sum(group.num_accepted for group in states))

    async def submit(self, *tasks):
        """Queue the tasks; return the ids of their groups."""
        return await asyncio.to_thread(self.dispatcher.submit, list(tasks))

    async def wait(self, groups):
        """Wait until the groups are closed; return their states."""
        states = await asyncio.to_thread(self.dispatcher.wait, groups, scaled(60))
        if not all(group.is_closed for group in states):
            raise WaitExpired(f"waited for groups that did not close: {self.dispatcher.rollouts(groups)}")
        return states

    async def trajectories(self, num_accepted):
        """All that there are; logs are shipped side by side, so that one may be accepted before another is whole."""
        await until(lambda: self._have_ended(num_accepted), log=lambda: repr(self.store.query(limit=1000).items))
        return [self.store.get(row.trajectory_id) for row in self.store.query(order="oldest", limit=1000).items]

    def _have_ended(self, num_accepted):
        rows = self.store.query(limit=1000).items
        return sum(row.accepted for row in rows) >= num_accepted and all(row.status in FINAL_STATUSES for row in rows)


@pytest.fixture
async def harness(settings):
    async with open_harness(settings) as harness:
        yield harness


@asynccontextmanager
async def open_harness(settings):
    """Serve an engine and a gateway in this loop, for the workers of a test or of a module."""
    patience = {"connect_seconds": scaled(20.0), "seal_seconds": scaled(60.0), "stop_seconds": scaled(5.0)}
    pace = {"retry_base_seconds": 0.02, "heartbeat_seconds": 0.1, "api_key": "operator-key"}
    mine, keys = settings.model_copy(update=patience | pace), Keys(settings.namespace)
    with pytest.MonkeyPatch.context() as patch, open_redis(mine) as redis:
        patch.setattr(envs.worker.worker, "_CLAIM_SECONDS", 0.1)  # longest wait of a worker that stops
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
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        # a thread of the gateway still waits for news of engines, and the loop waits for its threads
        redis.xadd(keys.engine_events, {"url": engine.url})
        log.close()


def make_task(name="t", **fields):
    """Return a task for any agent: most agents of these tests have no model to call."""
    return Task(**({"id": name, "run": RUN, "input": {"says": "hi"}, "calls_optional": True} | fields))


def tool_call(name, /, call_id="c0", **arguments):
    """Return a call of a tool as models write it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@pytest.fixture(scope="module")
def write_shared_module(tmp_path_factory):
    """Like ``write_module``, for what the tests of a module share."""
    folder = tmp_path_factory.mktemp("modules")

    def write(name, text):
        (folder / f"{name}.py").write_text(text)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield write


@pytest.fixture(scope="session")
def needs_boxes():
    """Boxes of kind namespace work on this machine."""
    require_kind("namespace")


@pytest.fixture(name="task")
def _task():
    """``task("name", **fields)`` makes a task of the tests' run."""
    return make_task


@pytest.fixture
async def client():
    """Shared by all rollouts, built for an unused address."""
    async with make_client() as client:
        yield client


def make_client():
    return openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=2)


@pytest.fixture
def chatter(client):
    """An agent of two turns that reports its own reward."""

    async def chatter(task, rollout):
        return await chat(client, task, rollout)

    return chatter


async def chat(client, task, rollout):
    """Have two turns; return 0.5."""
    messages = [{"role": "user", "content": f"{task.input['says']} {rollout.rollout_id}"}]
    for _ in range(2):
        answer = await client.chat.completions.create(model="any", messages=messages)
        messages += [answer.choices[0].message, {"role": "user", "content": "more"}]
    return 0.5
