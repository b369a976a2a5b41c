"""A gateway that refuses its workers: nothing is tried for ever, the run is paused and says why, no attempt is lost."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from agent_layer.cli.services.doctor import look_at_access, look_at_service
from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import AccessRefusedError, BadInputError
from agent_layer.health import HealthReader
from agent_layer.local.operator_key import claim_operator_key
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.settings import Settings
from agent_layer.state import is_operator_key, record_operator_key
from agent_layer.store import open_store
from envs.agents import make_target
from envs.worker.service import WorkOptions, open_worker

from ...queues import Queue
from ...waiting import scaled, until, within
from .conftest import WorkerHarness, make_task, serve_gateway

KEY = "operator-key"


@pytest.fixture
def mine(settings):
    pace = {"retry_base_seconds": 0.02, "heartbeat_seconds": 0.1, "connect_seconds": scaled(20.0), "max_attempts": 2}
    return settings.model_copy(update=pace | {"api_key": KEY})


def change(settings, **others):
    """Return other settings; a copy would keep what was derived from the first."""
    return Settings(**settings.model_dump(exclude_unset=True) | others)


@pytest.fixture
async def fleet(mine, redis, keys, monkeypatch):
    """``async with fleet(api_key) as harness``: a gateway with this key, always at the same address."""
    monkeypatch.setattr("envs.worker.worker._CLAIM_SECONDS", 0.1)
    monkeypatch.setattr("envs.worker.worker._ACCESS_SECONDS", 0.05)
    async with serve(ScriptedEngine()) as engine, serve_gateway(mine, redis, keys, engine) as url:
        port = int(url.rpartition(":")[2])

    def start(api_key, **others):
        return serve_gateway(change(mine, api_key=api_key, **others), redis, keys, engine, port)

    mine = mine.model_copy(update={"gateway_url": url})
    harness = WorkerHarness(settings=mine, engine=engine, dispatcher=Dispatcher(redis, mine), store=open_store(mine))
    return harness, start


async def answer(_task, _rollout):
    return 1.0


async def read_run(harness):
    (state,) = await asyncio.to_thread(harness.dispatcher.runs, ["default"])
    return state


@pytest.mark.parametrize("is_running", [False, True], ids=["between attempts", "in mid-attempt"])
async def test_a_gateway_that_restarts_with_another_key_costs_no_attempt(fleet, redis, is_running):
    harness, start = fleet
    go_on, has_begun = asyncio.Event(), asyncio.Event()

    async def agent(_task, _rollout):
        has_begun.set()
        await go_on.wait()
        return 1.0

    async with AsyncExitStack() as first:
        await first.enter_async_context(start(KEY))
        async with harness.worker(agent, slots=2):
            groups = await harness.submit(make_task("t0")) if is_running else []
            await until(lambda: not is_running or has_begun.is_set())
            await first.aclose()
            async with start("another-key"):
                groups += await harness.submit(*(make_task(f"t{number}") for number in range(1, 4)))
                go_on.set()
                await until(lambda: harness.dispatcher.runs(["default"])[0].paused)
                await until(lambda: harness.dispatcher.stats().num_leased == 0)
                state = await read_run(harness)
                assert "does not take the operator key" in state.paused
                findings = HealthReader(harness.settings, redis).read(["default"])[0].findings
                assert "refused" in {one.name for one in findings}
                rollouts = harness.dispatcher.rollouts(groups)
                await asyncio.sleep(0.5)  # wait: nothing happens meanwhile
                assert harness.dispatcher.rollouts(groups) == rollouts
                assert max(one.num_attempts for one in rollouts) <= 2
                assert {one.num_failures for one in rollouts} == {0}
            async with start(KEY):
                states = await harness.wait(groups)

    assert [group.num_accepted for group in states] == [1] * len(groups)
    assert (await read_run(harness)).paused is None


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ({"api_key": "another-key"}, "AGENT_LAYER_API_KEY"),
        ({"namespace": "elsewhere"}, "found 'elsewhere'"),
        ({"objects_url": "s3://other/place"}, "found 's3://other/place'"),
    ],
    ids=["key", "namespace", "bucket"],
)
async def test_a_worker_that_its_gateway_can_never_serve_says_so_at_its_start(fleet, others, found):
    harness, start = fleet
    settings = change(harness.settings, **({"objects_url": "s3://own/place"} if "objects_url" in others else {}))
    async with start(**{"api_key": KEY, **others}):
        with ThreadPoolExecutor(2) as pool:
            options = WorkOptions(agent="m:agent", target=make_target(answer, "m:agent"))
            async with open_worker(settings, options, pool) as worker:
                with pytest.raises(AccessRefusedError, match=found):
                    await worker.check_access()
        access = await asyncio.to_thread(look_at_access, settings.gateway_url, settings)

    assert (access.state, found in access.finding) == ("bad", True)


def ask(url):
    return look_at_service("gateway", url, scaled(20.0))


async def test_the_right_key_is_ok_and_a_dead_engine_is_not(fleet):
    harness, start = fleet
    async with start(KEY):
        url = harness.settings.gateway_url
        access = await asyncio.to_thread(look_at_access, url, harness.settings)
        async with within(60, "the gateway to miss its engine"):
            while "no engine answers" not in (gateway := await asyncio.to_thread(ask, url)).finding:
                pass

    assert (access.state, gateway.state) == ("ok", "bad")


def test_a_gateway_that_would_refuse_the_running_workers_does_not_start(settings, redis, keys):
    record_operator_key(redis, keys, "theirs")
    queue = Queue(redis, keys, settings)
    queue.heartbeat("w", b"{}", [])

    with pytest.raises(BadInputError, match="AGENT_LAYER_API_KEY"):
        claim_operator_key(settings)
    assert claim_operator_key(change(settings, api_key="theirs")).api_key == "theirs"
    queue.leave("w")
    minted = claim_operator_key(settings).api_key
    assert is_operator_key(redis, keys, minted)
    queue.heartbeat("w", b"{}", [])
    assert claim_operator_key(settings).api_key == minted
    assert minted.encode() not in redis.get(keys.operator_key)
