"""A limit of cost: no more is spent than what calls in flight cost beyond it, and nothing is refused before it."""

import asyncio
import random
from itertools import count

import msgspec
import pytest
from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.gateway.calls.spending import read_cost_limit
from agent_layer.schema.step import StepPart

from ...waiting import until, within
from .conftest import OPERATOR, hold, make_messages

DOLLAR_A_TOKEN = {"prompt": 1e6, "response": 0}
DOLLAR_A_SAMPLED_TOKEN = {"prompt": 0, "response": 1e6}


@pytest.fixture
def run_limited(settings, run_gateway):
    """``async with run_limited(5)``: a gateway whose calls may cost 5 dollars, one for each token of a prompt."""

    def run(dollars, price=DOLLAR_A_TOKEN):
        limit = msgspec.json.encode({"dollars": dollars, "policy": price}).decode()
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


async def test_time_that_goes_by_while_a_call_waits_for_the_limit_is_no_fault_of_the_policy(run_limited, engine):
    async with run_limited(1) as gateway:
        opened, other = await gateway.open(), await gateway.open(limits={"wall_seconds": 0.3})
        go_on = hold(engine)
        first = asyncio.create_task(gateway.chat(opened, "a"))
        await until(lambda: engine.calls)
        status, answer = await gateway.chat(other, "b")
        go_on.set()
        await first

    assert (status, answer["error"]["code"]) == (402, "cost_limit")


async def test_what_an_engine_failed_costs_nothing(run_limited, engine):
    def fail(_):
        raise web.HTTPInternalServerError

    async with run_limited(1) as gateway:
        opened, works = await gateway.open(), engine.script
        engine.script = fail
        assert (await gateway.chat(opened, "a"))[0] >= 500
        engine.script = works

        assert (await gateway.chat(opened, "a"))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage", [{"prompt_tokens": -(10**6)}, {"prompt_tokens": 10**400}, {"prompt_tokens": 10**30}])
async def test_an_impossible_count_makes_no_call_cheaper_and_stops_none(run_limited, engine, usage, stream):
    engine.token_ids = False
    engine.rewrite = lambda _, sent: sent | {"usage": usage | {"completion_tokens": 1}}
    async with run_limited(5) as gateway:
        opened = [await gateway.open() for _ in range(8)]
        calls = (gateway.chat(one, "word " * 8, stream=stream) for one in opened)
        async with within(30, "every call has an answer"):
            found = [status for status, _ in await asyncio.gather(*calls)]

        assert set(found) == {200, 402}
        assert found.count(200) == len(engine.calls) < len(opened)


@pytest.mark.parametrize("token_ids", [True, False])
@pytest.mark.parametrize("end", ["client", "engine"])
async def test_a_stream_that_is_cut_off_costs_what_came_of_it(run_limited, engine, end, token_ids):
    engine.token_ids, engine.script = token_ids, lambda _: "word " * 40
    go_on = asyncio.Event()

    def break_off(_, sent):
        if "word" in str(sent) and next(words) % 40 == 30:
            raise ConnectionResetError
        return sent

    words = count()
    if end == "engine":
        engine.rewrite = break_off
    else:
        engine._pause_before_word = lambda _: go_on.wait() if next(words) % 40 == 30 else asyncio.sleep(0)
    async with run_limited(20, DOLLAR_A_SAMPLED_TOKEN) as gateway:
        found = [await ask_in_part(gateway, end) for _ in range(4)]
        go_on.set()

    assert found[0] == 200
    assert found[-1] == 402


async def ask_in_part(gateway, end):
    """Ask for a stream and leave after 20 words, or read until the engine breaks off; return the status."""
    opened, num = await gateway.open(), len(gateway.log.parts("end"))
    body = {"model": "m", "messages": make_messages("a"), "stream": True}
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    url = f"{opened['base_url']}/chat/completions"
    async with gateway.session.post(url, json=body, headers=headers) as reply:
        if reply.status != 200:
            return reply.status
        num_words = 0
        async for line in reply.content:
            num_words += b"word" in line
            if num_words > 20 and end == "client":
                break
    await until(lambda: len(gateway.log.parts("end")) > num)
    return 200


@pytest.mark.parametrize(
    "setting",
    [
        *("5", "{", '{"dollars": 5}', '{"dollars": "x", "policy": {}}'),
        '{"dollars": 5, "policy": {"prompt": -1, "response": 1}}',
    ],
)
def test_a_limit_without_prices_is_refused(setting):
    with pytest.raises(BadInputError, match="AGENT_LAYER_COST_LIMIT"):
        read_cost_limit(setting)
