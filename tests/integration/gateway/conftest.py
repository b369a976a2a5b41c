"""A gateway in front of a scripted engine, with its log in memory, so that no test waits for a disk."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from agent_layer.engines.registry import EngineRegistry
from agent_layer.gateway.app import build_app
from agent_layer.gateway.http.server import GuardedRunner
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.recorder.log import PreparedRecords
from agent_layer.schema.segment import ENDED, STARTED
from agent_layer.schema.step import StepPart
from agent_layer.schema.trajectory import Trajectory, assemble_trajectory

from ...clocks import SteppedClock
from ...waiting import scaled

OPERATOR = "operator-key"


class MemoryLog:
    """A log that settles at once."""

    def __init__(self):
        self.records = []
        self.has_space = True
        self.unsettled = set()

    def append(self, *records):
        self.records.extend(records)
        return "memory"

    def prepare(self, *records):
        return PreparedRecords(records, b"")

    def append_prepared(self, prepared):
        return self.append(*prepared.records)

    def has_room(self):
        return self.has_space

    def is_settled(self, log_name):
        return log_name not in self.unsettled

    def of(self, kind):
        return [record for record in self.records if isinstance(record, kind)]

    def parts(self, phase=None):
        return [part for part in self.of(StepPart) if phase in (None, part.phase)]

    def trajectory(self, trajectory_id) -> Trajectory:
        mine = [record for record in self.records if getattr(record, "trajectory_id", None) == trajectory_id]
        return assemble_trajectory(trajectory_id, mine)


@dataclass(kw_only=True)
class GatewayHarness:
    """A gateway, its engine, and a client of both."""

    url: str
    engine: ScriptedEngine
    log: MemoryLog
    registry: EngineRegistry
    session: aiohttp.ClientSession
    clock: SteppedClock
    rollouts: list[dict] = field(default_factory=list)

    async def post(self, path, body, key=OPERATOR, headers=None):
        """Return (status, answer)."""
        headers = {"Authorization": f"Bearer {key}", **(headers or {})}
        async with self.session.post(self.url + path, json=body, headers=headers) as reply:
            return reply.status, await reply.json()

    async def open(self, **fields):
        status, opened = await self.post("/rollouts", {"task_id": "t", **fields})
        assert status == 200, opened
        return opened

    async def chat(self, opened, *message, headers=None, **fields):
        """Ask with these texts, by turns of user and assistant; a stream's chunks come as a list."""
        body = {"model": "any-name", "messages": make_messages(*message), **fields}
        headers = {"Authorization": f"Bearer {opened['api_key']}", **(headers or {})}
        url = f"{opened['base_url']}/chat/completions"
        async with self.session.post(url, json=body, headers=headers) as reply:
            if reply.content_type == "text/event-stream":
                return reply.status, read_chunks(await reply.text())
            return reply.status, await reply.json()

    async def metrics(self):
        """Return the metrics as Prometheus reads them."""
        async with self.session.get(f"{self.url}/metrics") as reply:
            assert reply.status == 200
            return await reply.text()

    async def figure(self, name):
        """Return one metric, by its name with labels but without 'agent_layer_'; 0 if absent."""
        lines = dict(line.rsplit(" ", 1) for line in (await self.metrics()).splitlines() if not line.startswith("#"))
        return int(lines.get(f"agent_layer_{name}", 0))

    async def is_empty(self):
        """Whether no rollout is open."""
        return await self.figure("rollouts_open") == 0

    def step(self, opened, index=-1):
        return self.log.trajectory(opened["trajectory_id"]).steps[index]


async def switch(gateway, version, before=lambda: None):
    """Load new weights into the engine."""
    url, directory = gateway.engine.url, Path("weights") / str(version)

    def load():
        before()
        gateway.registry.control(url).load(directory)

    await asyncio.to_thread(gateway.registry.switch, url, version, str(directory), load, scaled(30.0))


def make_messages(*message):
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(message)]


def read_chunks(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@asynccontextmanager
async def open_gateway(
    settings, redis, register_engine, engine, log, *, tls=None, clock=None
) -> AsyncIterator[GatewayHarness]:
    settings, clock = settings.model_copy(update={"connect_seconds": scaled(30.0)}), clock or SteppedClock()
    async with serve(engine), aiohttp.ClientSession() as session:
        # the switch waits for the gateway, however long this machine delays it
        registry = register_engine(engine, settings.model_copy(update={"gateway_seconds": scaled(30.0)}))
        app = build_app(settings, redis, log, clock=clock)
        runner = GuardedRunner(app, settings.header_seconds, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield GatewayHarness(url=url, engine=engine, log=log, registry=registry, session=session, clock=clock)
        finally:
            await runner.cleanup()
            # a thread of the gateway still waits for news of engines, and the loop waits for its threads
            registry.redis.xadd(registry.keys.engine_events, {"url": engine.url})


@pytest.fixture(name="switch")
def _switch():
    return switch


def hold(engine):
    """Block the engine before its next word; yield the event that releases it. No answer ends before."""
    go_on = asyncio.Event()
    engine._pause_before_word = lambda _: go_on.wait()
    return go_on


@pytest.fixture(name="hold")
def _hold():
    return hold


@pytest.fixture
def log():
    return MemoryLog()


@pytest.fixture
def index(redis, keys, log):
    """Index the calls of the log as they are asked for, as a shipper would have done."""

    def hold(*records):
        for part in records:
            if isinstance(part, StepPart):
                answer = STARTED if part.phase == "start" else STARTED | ENDED
                redis.hset(keys.calls(part.trajectory_id), part.call_id, f"{answer} 1")
        return append(*records)

    append, log.append = log.append, hold


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
def run_gateway(redis, register_engine, engine, log):
    """``async with run_gateway(settings, tls=None, clock=None) as gateway``: one with settings of the test's own."""
    return partial(open_gateway, redis=redis, register_engine=register_engine, engine=engine, log=log)


@pytest.fixture
async def gateway(settings, run_gateway):
    async with run_gateway(
        settings.model_copy(update={"api_key": OPERATOR, "gateway_seconds": 1.0, "close_seconds": 0.2})
    ) as kept:
        yield kept


@pytest.fixture
async def preempting_gateway(settings, run_gateway, engine):
    """Cuts calls off when weights are switched; its engine takes its time for each word."""
    engine.token_seconds, engine.weights = 0.02, "0"
    mode = {"api_key": OPERATOR, "gateway_seconds": 1.0, "close_seconds": 0.2, "switch_mode": "abort"}
    async with run_gateway(settings.model_copy(update=mode)) as kept:
        yield kept
