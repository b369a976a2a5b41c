"""A limit of cost: no more is spent than what calls in flight cost beyond it, and nothing is refused before it."""

import asyncio
import random

import msgspec
import pytest
from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.gateway.calls.spending import read_cost_limit
from agent_layer.schema.step import StepPart

from ...waiting import until
from .conftest import OPERATOR, hold

DOLLAR_A_TOKEN = {"prompt": 1e6, "response": 0}


@pytest.fixture
def run_limited(settings, run_gateway):
    """``async with run_limited(5)``: a gateway whose calls may cost 5 dollars, one for each token of a prompt."""

    def run(dollars):
        limit = msgspec.json.encode({"dollars": dollars, "policy": DOLLAR_A_TOKEN}).decode()
        return run_gateway(settings.model_copy(update={"api_key": OPERATOR, "cost_limit": limit}))

    return run


def costs(gateway):
    return [part.usage.prompt_tokens for part in gateway.log.of(StepPart) if part.phase == "end" and part.usage]


@pytest.mark.parametrize("seed", range(3))
async def test_calls_that_are_fast_and_many_stop_at_the_limit_and_not_before(run_limited, seed):
    dice = random.Random(seed)
    words = ["word " * dice.randint(1, 20) for _ in range(80)]
    async with run_limited(300) as gateway:
        opened = [await gateway.open() for _ in range(4)]
        answers = await asyncio.gather(*(gateway.chat(dice.choice(opened), text.strip()) for text in words))

        spent = costs(gateway)
        assert 300 <= sum(spent) <= 300 + max(spent)
        assert len(spent) == sum(status == 200 for status, _ in answers)
    refused = [answer for status, answer in answers if status != 200]
    assert {one["error"]["code"] for one in refused} == {"cost_limit"}
    assert len(refused) + len(spent) == len(words)


async def test_a_call_waits_for_one_in_flight_that_may_use_up_the_limit(run_limited, engine):
    async with run_limited(1) as gateway:
        opened, other = await gateway.open(), await gateway.open()
        go_on = hold(engine)
        first = asyncio.create_task(gateway.chat(opened, "a"))
        await until(lambda: engine.calls)
        second = asyncio.create_task(gateway.chat(other, "b"))
        await asyncio.sleep(0)
        go_on.set()

        assert ((await first)[0], (await second)[0]) == (200, 402)
        assert len(engine.calls) == 1


async def test_what_an_engine_failed_costs_nothing(run_limited, engine):
    def fail(_):
        raise web.HTTPInternalServerError

    async with run_limited(1) as gateway:
        opened, works = await gateway.open(), engine.script
        engine.script = fail
        assert (await gateway.chat(opened, "a"))[0] >= 500
        engine.script = works

        assert (await gateway.chat(opened, "a"))[0] == 200


@pytest.mark.parametrize("setting", ["5", "{", '{"dollars": 5}', '{"dollars": "x", "policy": {}}'])
def test_a_limit_without_prices_is_refused(setting):
    with pytest.raises(BadInputError, match="AGENT_LAYER_COST_LIMIT"):
        read_cost_limit(setting)
