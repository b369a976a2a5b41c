"""Every token's version is the one that sampled it, whenever weights are switched."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from agent_layer.engines.control import EngineControl
from agent_layer.errors import EngineError
from agent_layer.local.scripted.script import word_token_id
from agent_layer.schema.step import StepPart

from ...waiting import scaled


def tell_weights(prompt):
    """Each word, when it is drawn, names the weights that are loaded."""
    return (Path(prompt.weights()).name for _ in range(6))


def switch(gateway, version, load=None):
    url, directory = gateway.engine.url, Path("weights") / str(version)
    load = load or (lambda: EngineControl(url).load(directory))
    gateway.registry.switch(url, version, str(directory), load, scaled(30.0))


def answered(gateway):
    return [part.actions[0] for part in gateway.log.of(StepPart) if part.actions]


def is_sampled(gateway, version):
    return any(version == one for action in answered(gateway) for one, _ in action.policy_versions)


@pytest.mark.parametrize("stream", [False, True])
async def test_two_switches_under_load(gateway, until, stream):
    gateway.engine.script, gateway.engine.token_seconds, gateway.engine.weights = tell_weights, 0.001, "0"
    rollouts = [await gateway.open() for _ in range(8)]
    is_over = asyncio.Event()

    async def talk(opened):
        while not is_over.is_set():
            assert (await gateway.chat(opened, "go", stream=stream))[0] == 200

    talking = [asyncio.create_task(talk(opened)) for opened in rollouts]
    for version in (1, 2):
        await until(partial(is_sampled, gateway, version - 1))
        await asyncio.to_thread(switch, gateway, version)
    await until(partial(is_sampled, gateway, 2))
    is_over.set()
    await asyncio.gather(*talking)

    for action in answered(gateway):
        ((version, num_tokens),) = action.policy_versions
        assert num_tokens == 7
        assert set(action.response_token_ids[:6]) == {word_token_id(str(version))}


async def test_an_adapter_is_served_under_its_name_until_whole_weights_replace_it(gateway, tmp_path):
    adapter, whole = tmp_path / "adapter", tmp_path / "whole"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    gateway.engine.script = tell_weights
    opened = await gateway.open()

    for version, directory in enumerate([adapter, whole, adapter], 1):
        load = partial(EngineControl(gateway.engine.url).load, directory)
        seconds = scaled(30.0)
        await asyncio.to_thread(gateway.registry.switch, gateway.engine.url, version, str(directory), load, seconds)
        assert (await gateway.chat(opened, "go"))[0] == 200

    questions = [call.body["model"] for call in gateway.engine.calls]
    assert questions == ["scripted-lora", "scripted", "scripted-lora"]
    spoken = [action.response_token_ids[0] for action in answered(gateway)]
    assert spoken == [word_token_id(one) for one in ("adapter", "whole", "adapter")]
    assert gateway.engine.controls["reset_prefix_cache"] == gateway.engine.controls["resume"] == 3


async def test_no_call_is_in_flight_while_weights_are_loaded(gateway, until):
    gateway.engine.token_seconds = 0.01
    opened = await gateway.open()
    seen = []

    calling = [asyncio.create_task(gateway.chat(opened, f"hello {index}")) for index in range(4)]
    await until(lambda: gateway.engine.num_running)
    await asyncio.to_thread(switch, gateway, 1, lambda: seen.append(gateway.engine.num_running))
    await asyncio.gather(*calling)

    assert seen == [0]


async def test_an_engine_found_half_way_gets_no_calls_until_it_was_loaded(gateway):
    opened = await gateway.open()

    def die():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await asyncio.to_thread(switch, gateway, 1, die)
    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await asyncio.sleep(0.1)  # time in which the call could reach the engine
    assert gateway.engine.calls == []
    assert gateway.registry.read(gateway.engine.url).state == "loading"
    await asyncio.to_thread(switch, gateway, 2)

    assert (await calling)[0] == 200
    assert gateway.step(opened).action.policy_versions[0][0] == 2


async def test_a_call_that_does_not_end_leaves_the_old_weights_in_service(gateway, until):
    gateway.engine.token_seconds = 60
    opened = await gateway.open()
    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await until(lambda: gateway.engine.num_running)

    with pytest.raises(EngineError, match="in flight"):
        await asyncio.to_thread(gateway.registry.switch, gateway.engine.url, 1, "w", lambda: None, 0.1)

    assert gateway.registry.read(gateway.engine.url).state == "serving"
    assert gateway.registry.read(gateway.engine.url).version == 0
    calling.cancel()


async def test_a_gateway_that_is_gone_is_not_waited_for(gateway, redis: Redis, keys):
    redis.zadd(keys.gateways, {"gone": redis.time()[0] - 2 * gateway.registry.gateway_seconds})

    await asyncio.to_thread(switch, gateway, 1)

    assert gateway.registry.read(gateway.engine.url).version == 1


async def test_a_gateway_that_lives_is_waited_for(gateway, redis: Redis, keys):
    redis.zadd(keys.gateways, {"busy": redis.time()[0] + 60})

    with pytest.raises(EngineError, match="busy"):
        await asyncio.to_thread(gateway.registry.switch, gateway.engine.url, 1, "w", lambda: None, 0.1)


async def test_two_drivers_do_not_both_succeed(gateway):
    def other_switches():
        switch(gateway, 7)

    with pytest.raises(EngineError, match="another driver"):
        await asyncio.to_thread(switch, gateway, 1, other_switches)

    assert gateway.registry.read(gateway.engine.url).version == 7


async def test_an_unknown_engine_cannot_be_switched(gateway):
    with pytest.raises(EngineError, match="register it"):
        gateway.registry.switch("http://nowhere", 1, "w", lambda: None)
