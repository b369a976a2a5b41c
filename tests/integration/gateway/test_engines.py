"""Engines come, go and die while rollouts talk; each call is one step all the same."""

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from agent_layer.engines.registry import EngineRegistry
from agent_layer.errors import BadInputError
from agent_layer.gateway.engines.pool import EngineWatcher
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import echo
from agent_layer.local.scripted.serving import serve

from ...waiting import within


@pytest.fixture
def poll_seconds():
    """The gateway learns the state of engines from calls alone: no probe runs between two lines of a test."""
    return 600.0


@pytest.fixture
async def gateway(settings, run_gateway, poll_seconds):
    mine = {"api_key": "operator-key", "gateway_seconds": 1.0, "close_seconds": 0.2}
    async with run_gateway(settings.model_copy(update={**mine, "engine_poll_seconds": poll_seconds})) as kept:
        yield kept


@pytest.fixture
async def second(gateway):
    """Another engine, which has joined."""
    async with serve(ScriptedEngine(script=lambda _: "second")) as engine:
        status, joined = await gateway.post("/engines", {"url": f"{engine.url}/v1"})
        assert status == 200, joined
        yield engine


async def test_a_rollout_keeps_its_engine_and_new_ones_take_turns(gateway, second):
    rollouts = [await gateway.open() for _ in range(4)]
    for _ in range(3):
        for opened in rollouts:
            await gateway.chat(opened, "hello")

    homes = [{step.engine for step in gateway.log.trajectory(one["trajectory_id"]).steps} for one in rollouts]
    assert all(len(home) == 1 for home in homes)
    assert set.union(*homes) == {gateway.engine.url, second.url}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_whose_engine_died_goes_to_another_as_the_same_call(gateway, stream):
    async with AsyncExitStack() as first:
        dying = await first.enter_async_context(serve(ScriptedEngine()))
        await gateway.post("/engines", {"url": dying.url})
        opened = await open_at(gateway, dying)
        await first.aclose()

        status, _ = await gateway.chat(opened, "are you there", stream=stream)

    assert status == 200
    step = gateway.step(opened)
    assert (step.status, step.engine) == ("ok", gateway.engine.url)
    assert step.findings.count("engine_changed") == 1
    calls = [part for part in gateway.log.parts() if part.call_id == step.call_id]
    assert [(part.phase, part.engine) for part in calls] == [("start", dying.url), ("end", gateway.engine.url)]


async def test_a_stream_that_said_nothing_yet_goes_on_elsewhere(gateway, until):
    async with AsyncExitStack() as first:
        dying = await first.enter_async_context(serve(ScriptedEngine()))
        await gateway.post("/engines", {"url": dying.url})
        opened = await open_at(gateway, dying)
        dying.prefill_seconds = 60
        calling = asyncio.create_task(gateway.chat(opened, "are you there", stream=True))
        await until(lambda: dying.num_running)
        await first.aclose()
        status, chunks = await calling

    assert status == 200
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks).startswith("you said:")
    assert gateway.step(opened).engine == gateway.engine.url


def refuse(_):
    raise BadInputError("not this")


def fail(_):
    raise web.HTTPServiceUnavailable(text="{}", content_type="application/json")


async def test_an_engine_that_answers_with_its_own_fault_is_left(gateway, second):
    opened = await open_at(gateway, second)
    second.script = fail

    status, _ = await gateway.chat(opened, "again")

    assert status == 200
    assert gateway.step(opened).engine == gateway.engine.url


async def test_a_refusal_of_the_request_is_the_answer(gateway, second):
    gateway.engine.script = second.script = refuse
    opened = await gateway.open()

    status, answer = await gateway.chat(opened, "hello")

    assert (status, answer["error"]["message"]) == (400, "not this")
    assert len(gateway.log.parts("end")) == 1


async def test_the_only_engine_that_fails_gives_its_error(gateway):
    gateway.engine.script = fail
    opened = await gateway.open()

    assert (await gateway.chat(opened, "hello"))[0] == 503
    assert gateway.step(opened).status == "error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_engines", [1, 2, 3, 4])
async def test_a_request_that_two_engines_failed_goes_to_no_third(gateway, num_engines, stream):
    opened = await gateway.open(limits={"turns": 1})
    async with AsyncExitStack() as others:
        engines = [gateway.engine]
        for _ in range(num_engines - 1):
            engines.append(await others.enter_async_context(serve(ScriptedEngine())))
            await gateway.post("/engines", {"url": engines[-1].url})
        for engine in engines:
            engine.script = fail
            engine.calls.clear()

        status, _ = await gateway.chat(opened, "hello", stream=stream)
        request = sorted(len(engine.calls) for engine in engines)
        for engine in engines:
            engine.script = echo
        again, _ = await gateway.chat(opened, "hello", stream=stream)

    assert (status, again) == (503, 200)
    assert request == [0] * max(0, num_engines - 2) + [1] * min(2, num_engines)
    assert [step.status for step in gateway.log.trajectory(opened["trajectory_id"]).steps] == ["error", "ok"]


async def test_engines_that_are_not_there_do_not_count_as_failed(gateway):
    async with AsyncExitStack() as dying:
        for _ in range(3):
            engine = await dying.enter_async_context(serve(ScriptedEngine()))
            await gateway.post("/engines", {"url": engine.url})
        await dying.aclose()

        for _ in range(4):
            assert (await gateway.chat(await gateway.open(), "hello"))[0] == 200


async def test_a_drained_engine_gets_no_calls_until_it_joins_again(gateway, second):
    opened = await open_at(gateway, second)
    status, shown = await gateway.post("/engines/drain", {"url": second.url})
    assert (status, shown[0]["is_drained"]) == (200, True)

    await gateway.chat(opened, "hello")
    assert gateway.step(opened).engine == gateway.engine.url

    await gateway.post("/engines", {"url": second.url})
    assert second.url in {await find_home(gateway) for _ in range(4)}


async def test_an_engine_that_leaves_ends_its_calls(gateway, second, until, hold):
    opened, go_on = await open_at(gateway, second), hold(second)
    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await until(lambda: second.num_running)

    status, left = await gateway.post("/engines/leave", {"url": second.url})
    go_on.set()

    assert (status, left["in_flight"]) == (200, 1)
    assert (await calling)[0] == 200
    assert {await find_home(gateway) for _ in range(4)} == {gateway.engine.url}


@pytest.mark.parametrize("poll_seconds", [0.1])
async def test_engines_say_how_busy_they_are(gateway, second):
    second.num_waiting, second.cache_usage = 30, 0.99

    async def shown():
        async with gateway.session.get(
            f"{gateway.url}/engines", headers={"Authorization": "Bearer operator-key"}
        ) as reply:
            return {engine["url"]: engine for engine in await reply.json()}

    async with within(60, "the number of the engine's other calls"):
        while (await shown())[second.url]["others"] < 30:
            await gateway.chat(await gateway.open(), "hello")
    assert {await find_home(gateway) for _ in range(4)} == {gateway.engine.url}


@pytest.mark.parametrize("path", ["/engines", "/engines/drain", "/engines/leave"])
async def test_only_operators_decide_about_engines(gateway, path):
    opened = await gateway.open()

    status, _ = await gateway.post(path, {"url": gateway.engine.url}, key=opened["api_key"])

    assert status == 401


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://10.0.0.1:8000",
        "http://evil.example:80",
        "http://127.0.0.1.evil.example",
        "http://user@127.0.0.1:1",
        "http://2130706433:80",
        "http://[::ffff:10.0.0.1]:80",
        "http://127.0.0.1:1/admin",
        "file:///etc/passwd",
        "gopher://127.0.0.1",
    ],
)
async def test_an_address_that_is_not_allowed_is_refused_unasked(gateway, url):
    status, answer = await gateway.post("/engines", {"url": url})

    assert status == 400
    assert "engine" in answer["error"]["message"]


async def open_at(gateway, engine):
    """Open a rollout that has this engine."""
    for _ in range(8):
        opened = await gateway.open()
        await gateway.chat(opened, "hello")
        if gateway.step(opened).engine == engine.url:
            return opened
    raise AssertionError(f"no rollout came to {engine.url}")


async def find_home(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "hello")
    return gateway.step(opened).engine


@pytest.mark.parametrize("poll_seconds", [0.1])
async def test_an_engine_that_ended_serves_again_only_with_weights_that_are_known(gateway, until):
    async with AsyncExitStack() as first:
        ending = await first.enter_async_context(serve(ScriptedEngine()))
        await gateway.post("/engines", {"url": ending.url})
        url, port = ending.url, int(ending.url.rpartition(":")[2])
        await asyncio.to_thread(gateway.registry.switch, url, 1, "weights/1", lambda: None)
        await gateway.open()
    await until(lambda: gateway.registry.read(url).state == "loading")

    async with serve(ScriptedEngine(), port=port):
        assert {await find_home(gateway) for _ in range(4)} == {gateway.engine.url}
        await asyncio.to_thread(gateway.registry.switch, url, 2, "weights/2", lambda: None)
        await until(lambda: gateway.registry.read(url).state == "serving")
        async with within(60, "a call at the engine that serves again"):
            while await find_home(gateway) != url:
                pass


@pytest.mark.parametrize("poll_seconds", [0.1])
async def test_an_engine_that_ended_with_the_weights_it_starts_from_comes_back(gateway):
    async with serve(ScriptedEngine()) as ending:
        await gateway.post("/engines", {"url": ending.url})
        url, port = ending.url, int(ending.url.rpartition(":")[2])
    async with within(60, "a call at the engine that is left"):
        while await find_home(gateway) != gateway.engine.url:
            pass

    async with serve(ScriptedEngine(), port=port), within(60, "a call at the engine that came back"):
        while await find_home(gateway) != url:
            pass
    assert gateway.registry.read(url).state == "serving"


async def test_a_slow_reading_of_the_registry_replaces_no_newer_one(settings, register_engine, engine, monkeypatch):
    """Else a gateway that has reported an engine as drained would send to it while it loads."""
    async with serve(engine):
        registry = register_engine(engine, settings)
    watch, read = EngineWatcher(registry, "gateway", settings), EngineRegistry.engines
    has_read, newer_is_known = threading.Event(), threading.Event()

    def read_slowly(registry):
        engines = read(registry)
        if not has_read.is_set():
            has_read.set()
            newer_is_known.wait(0.5)  # wait: readings that take turns never set it
        return engines

    monkeypatch.setattr(EngineRegistry, "engines", read_slowly)
    older = asyncio.create_task(watch.refresh())
    await asyncio.to_thread(has_read.wait)
    registry.forget(engine.url)
    newer = asyncio.create_task(watch.refresh())
    newer.add_done_callback(lambda _: newer_is_known.set())
    await asyncio.gather(older, newer)

    assert watch.engines == []
