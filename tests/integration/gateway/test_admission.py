"""Adaptive concurrency: engines whose cache fills get fewer calls at a time, and the others wait in their order."""

import asyncio

import pytest

from agent_layer.engines.registry import Engine
from agent_layer.errors import EngineError
from agent_layer.gateway.engines.admission import Admission, adapt_limit
from agent_layer.gateway.engines.metrics import Gauges
from agent_layer.gateway.engines.rotation import Rotation

NUM_CALLS = 20


@pytest.fixture
async def gateway(settings, run_gateway):
    own = {"api_key": "operator-key", "adaptive_concurrency": True, "engine_poll_seconds": 0.05}
    async with run_gateway(settings.model_copy(update=own)) as kept:
        yield kept


@pytest.mark.parametrize(
    ("limit", "in_flight", "usage", "found"),
    [
        (None, 50, 0.5, None),
        (None, 50, 0.79, None),
        (None, 50, 0.8, 50),
        (None, 50, 0.9, 40),
        (None, 0, 0.99, 1),
        (40, 45, 0.9, 36),
        (30, 45, 0.95, 30),
        (40, 40, 0.85, 40),
        (40, 10, 0.85, 10),
        (40, 40, 0.7, 41),
        (40, 40, 0.3, 44),
        (1, 1, 0.0, 2),
        (40, 39, 0.3, 40),
    ],
)
def test_the_limit_follows_the_part_of_the_cache_in_use(limit, in_flight, usage, found):
    assert adapt_limit(limit, in_flight, usage) == found


async def test_calls_wait_while_the_cache_is_full_and_go_on_when_it_is_not(gateway, hold, until):
    go_on, engine = hold(gateway.engine), gateway.engine
    engine.cache_usage = 0.95
    rollouts = [await gateway.open() for _ in range(NUM_CALLS)]
    label = f'{{engine="{engine.url}",run="{gateway.registry.read(engine.url).run}"}}'
    await until(lambda: is_shown(gateway, f"engine_call_limit{label}", 1))

    calling = [asyncio.create_task(gateway.chat(opened, "hello")) for opened in rollouts]
    await until(lambda: is_shown(gateway, "calls_waiting", NUM_CALLS - 1))
    await until(lambda: engine.num_running == 1)
    engine.cache_usage = 0.5
    await until(lambda: engine.num_running > 5)
    go_on.set()

    assert [status for status, _ in await asyncio.gather(*calling)] == [200] * NUM_CALLS
    assert await gateway.figure("calls_waiting") == 0


async def test_an_engine_that_sheds_cuts_no_call_and_gets_none_in_its_place(gateway, hold, until):
    go_on, engine = hold(gateway.engine), gateway.engine
    rollouts = [await gateway.open() for _ in range(NUM_CALLS + 1)]
    calling = [asyncio.create_task(gateway.chat(opened, "hello")) for opened in rollouts[:NUM_CALLS]]
    await until(lambda: engine.num_running == NUM_CALLS)
    label = f'{{engine="{engine.url}",run="{gateway.registry.read(engine.url).run}"}}'

    engine.cache_usage = 0.92
    await until(lambda: is_shown(gateway, f"engine_call_limit{label}", NUM_CALLS * 8 // 10))
    late = asyncio.create_task(gateway.chat(rollouts[-1], "hello"))
    await until(lambda: is_shown(gateway, "calls_waiting", 1))
    assert engine.num_running == NUM_CALLS
    go_on.set()

    assert [status for status, _ in await asyncio.gather(*calling, late)] == [200] * (NUM_CALLS + 1)


async def test_calls_get_their_places_in_the_order_in_which_they_came(gateway, hold, until):
    engine = gateway.engine
    engine.cache_usage = 0.85
    go_on, label = hold(engine), f'{{engine="{engine.url}",run="{gateway.registry.read(engine.url).run}"}}'
    await until(lambda: is_shown(gateway, f"engine_call_limit{label}", 1))
    calling = []
    for number in range(6):
        calling.append(asyncio.create_task(gateway.chat(await gateway.open(), f"question {number}")))
        await until(lambda: engine.num_running == 1)
        await until(lambda number=number: is_shown(gateway, "calls_waiting", number))
    go_on.set()
    await asyncio.gather(*calling)

    assert [call.body["messages"][-1]["content"] for call in engine.calls] == [f"question {n}" for n in range(6)]


async def test_a_call_that_waits_no_more_takes_no_place(gateway, hold, until):
    engine = gateway.engine
    engine.cache_usage = 0.95
    go_on, label = hold(engine), f'{{engine="{engine.url}",run="{gateway.registry.read(engine.url).run}"}}'
    await until(lambda: is_shown(gateway, f"engine_call_limit{label}", 1))
    first = asyncio.create_task(gateway.chat(await gateway.open(), "first"))
    await until(lambda: engine.num_running == 1)
    second = asyncio.create_task(gateway.chat(await gateway.open(), "second", stream=True))
    await until(lambda: is_shown(gateway, "calls_waiting", 1))

    second.cancel()
    await until(lambda: is_shown(gateway, "calls_waiting", 0))
    go_on.set()

    assert (await first)[0] == 200
    assert (await gateway.chat(await gateway.open(), "third"))[0] == 200
    assert [call.body["messages"][-1]["content"] for call in engine.calls] == ["first", "third"]


@pytest.fixture
def full():
    """An engine that gets one call at a time."""
    return Engine(
        url="http://127.0.0.1:1",
        run="r",
        version=0,
        location="",
        model="m",
        logprobs_mode="raw",
        state="serving",
        epoch=0,
    )


@pytest.fixture
def admission(full):
    rotation = Rotation("r", limit=adapt_limit)
    rotation.update([full], {})
    rotation.record_success(full.url, Gauges(running=0, waiting=0, cache_usage=0.95))
    return Admission(rotation, lambda: True)


async def test_a_call_that_waited_too_long_is_told_why(admission, full):
    engine = await admission.acquire("r", None, 60.0)

    with pytest.raises(EngineError, match=r"limit of 1 calls from here \(95 % of its cache is in use"):
        await admission.acquire("r", None, 0.01)

    admission.release(engine)
    assert (await admission.acquire("r", None, 60.0), admission.num_waiting) == (full, 0)


async def test_a_place_that_frees_in_the_moment_a_caller_leaves_goes_to_the_next(admission, full):
    engine = await admission.acquire("r", None, 60.0)
    left, following = (asyncio.create_task(admission.acquire("r", None, 60.0)) for _ in range(2))
    await asyncio.sleep(0)  # both wait
    assert admission.num_waiting == 2

    left.cancel()
    admission.release(engine)

    assert await following == full
    with pytest.raises(asyncio.CancelledError):
        await left
    assert admission.num_waiting == 0


async def test_switches_and_durations_are_shown(gateway, switch):
    await switch(gateway, 1)
    await gateway.chat(await gateway.open(), "hello")

    label = f'{{engine="{gateway.engine.url}",run="{gateway.registry.read(gateway.engine.url).run}"}}'
    lines = dict(line.rsplit(" ", 1) for line in (await gateway.metrics()).splitlines() if line[0] != "#")
    assert float(lines[f"agent_layer_engine_stall_seconds{label}"]) > 0
    assert (
        lines[f"agent_layer_engine_stall_seconds{label}"] == lines[f"agent_layer_engine_stalled_seconds_total{label}"]
    )
    assert lines[f"agent_layer_engine_switches_total{label}"] == "1"
    assert lines[f"agent_layer_engine_serving{label}"] == "1"
    assert lines['agent_layer_call_seconds_bucket{le="+Inf"}'] == lines["agent_layer_call_seconds_count"] == "1"


async def is_shown(gateway, name, value):
    return await gateway.figure(name) == value
