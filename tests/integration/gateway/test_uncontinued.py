"""With calls that cannot be continued, a switch of weights waits as it does without ``switch_mode``."""

import asyncio

import pytest

from ...waiting import scaled

LIMIT = {"max_tokens": 100}
COUNTED = " ".join(f"w{index}" for index in range(30))
NUM_TOKENS = 31


@pytest.fixture
def gateway(preempting_gateway):
    preempting_gateway.engine.script = lambda _: COUNTED
    return preempting_gateway


def sampled(gateway):
    return sum(len(call.token_ids[0]) for call in gateway.engine.calls)


@pytest.mark.parametrize(
    "fields",
    [{}, {**LIMIT, "stop": ["x"]}, {**LIMIT, "n": 2}, {**LIMIT, "seed": 1}],
    ids=["no limit", "stop", "n", "seed"],
)
async def test_others_are_waited_for(gateway, until, fields, switch):
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", **fields))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1)
    await calling

    (part,) = gateway.log.parts("end")
    assert [action.policy_versions for action in part.actions] == [[(0, NUM_TOKENS)]] * len(part.actions)
    assert len(gateway.engine.calls) == 1


@pytest.mark.parametrize("message", [{"reasoning": "hm"}, {}], ids=["reasoning", "no ids"])
async def test_what_turns_out_to_need_its_engine_is_waited_for(gateway, until, message, switch):
    gateway.engine.token_ids = bool(message)
    gateway.engine.script = lambda _: {"content": COUNTED, **message}
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1)
    _, answer = await calling

    assert answer["choices"][0]["message"]["content"] == COUNTED
    assert answer["choices"][0]["message"].get("reasoning") == message.get("reasoning")
    assert len(gateway.engine.calls) == 1
    assert gateway.step(opened).findings == (["no_token_ids"] if not message else [])


async def test_by_default_all_are_waited_for(settings, run_gateway, engine, until, switch):
    engine.token_seconds, engine.script = 0.01, lambda _: COUNTED
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key", "gateway_seconds": 1.0})) as gateway:
        opened = await gateway.open()
        calling = asyncio.create_task(gateway.chat(opened, "go", **LIMIT))
        await until(lambda: sampled(gateway) > 5)
        await switch(gateway, 1)
        await calling

        assert gateway.step(opened).action.policy_versions == [(0, NUM_TOKENS)]
        assert "stream" not in gateway.engine.calls[0].body


async def test_a_drain_that_is_given_up_costs_the_answer_nothing(gateway, until):
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    url, seconds, gateway.engine.token_seconds = gateway.engine.url, gateway.engine.token_seconds, 60.0

    def speak_again():
        gateway.engine.token_seconds = seconds

    await asyncio.to_thread(gateway.registry.switch, url, 0, "initial", speak_again, scaled(30.0))
    await calling

    assert len(gateway.engine.calls) == 2
    assert gateway.step(opened).action.policy_versions == [(0, NUM_TOKENS)]
