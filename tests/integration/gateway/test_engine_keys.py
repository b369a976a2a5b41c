"""An engine that asks for a key gets it with every request of the gateway, and nothing else shows it."""

import asyncio
import json

import pytest

from agent_layer.engines import join_engine
from agent_layer.errors import EngineError
from agent_layer.local.scripted.engine import ScriptedEngine

from ...waiting import until

KEY = "key-of-the-engine"


@pytest.fixture
def engine():
    return ScriptedEngine(access_key=KEY)


async def list_engines(gateway):
    headers = {"Authorization": "Bearer operator-key"}
    async with gateway.session.get(f"{gateway.url}/engines", headers=headers) as reply:
        return await reply.text()


async def test_calls_of_each_kind_carry_it(gateway):
    opened = await gateway.open()

    plain, _ = await gateway.chat(opened, "hello")
    streamed, _ = await gateway.chat(opened, "hello", stream=True)

    assert (plain, streamed) == (200, 200)
    assert gateway.step(opened).status == "ok"


async def test_counts_of_tokens_carry_it(gateway):
    opened = await gateway.open(limits={"context_tokens": 4})

    status, _ = await gateway.chat(opened, "hello")

    assert (status, gateway.engine.calls) == (400, [])


async def test_health_checks_carry_it(settings, run_gateway):
    mine = {"api_key": "operator-key", "engine_poll_seconds": 0.02}
    async with run_gateway(settings.model_copy(update=mine)) as gateway:
        gateway.engine.cache_usage = 0.5

        async def load():
            (shown,) = json.loads(await list_engines(gateway))
            return (shown["is_well"], shown["cache_usage"]) == (True, 0.5)

        await until(load)


async def test_what_a_switch_cut_off_goes_on_with_it(preempting_gateway, switch):
    gateway = preempting_gateway
    gateway.engine.script = lambda _: "word " * 50
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", max_tokens=200))
    await until(lambda: sum(len(call.token_ids[0]) for call in gateway.engine.calls) > 5)
    gateway.engine.token_seconds = 60.0  # no answer ends before it is cut off
    await switch(gateway, 1, lambda: setattr(gateway.engine, "token_seconds", 0.0))
    status, _ = await calling

    assert (status, gateway.step(opened).findings) == (200, ["continued"])


async def test_an_engine_that_no_longer_takes_its_key_has_failed_and_the_agent_has_not(gateway):
    opened = await gateway.open()
    gateway.engine.access_key = "of its next start"

    status, answer = await gateway.chat(opened, "hello")

    assert (status, gateway.step(opened).status) == (502, "error")
    assert "refuses the gateway's key (401)" in json.dumps(answer)


async def test_no_record_and_no_answer_has_it(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "hello")

    shown = await list_engines(gateway)

    assert gateway.engine.url in shown
    assert KEY not in shown + await gateway.metrics() + repr(gateway.log.records) + repr(gateway.registry.engines())
    assert KEY not in repr(gateway.registry.control(gateway.engine.url))


async def test_an_engine_that_joins_again_keeps_it_and_one_that_left_has_none(gateway, settings, redis):
    def join():
        return join_engine(settings, redis, gateway.engine.url, "elsewhere")

    await asyncio.to_thread(join)
    assert gateway.registry.access_keys() == {gateway.engine.url: KEY}

    gateway.registry.forget(gateway.engine.url)
    with pytest.raises(EngineError, match="401"):
        await asyncio.to_thread(join)
