"""A Redis that was emptied, or put back to an older copy: gateways announce again what they know."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import msgspec
import pytest

from agent_layer.engines import Engine, EngineRegistry, get_policy
from agent_layer.errors import EngineError
from agent_layer.gateway.engines.pool import EngineWatcher
from agent_layer.state import read_loss

URLS = [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]


def read_copy(redis, keys):
    """Return all that Redis holds of the namespace, as a backup would."""
    return {key: redis.dump(key) for key in redis.scan_iter(match=keys.name("*"))}


def put_back(redis, keys, copy):
    """Let Redis hold an earlier copy, or nothing."""
    for key in redis.scan_iter(match=keys.name("*")):
        redis.delete(key)
    for key, value in copy.items():
        redis.restore(key, 0, value, replace=True)  # a gateway may have announced itself again


def make_entry(url):
    about = {"run": "r", "version": 0, "location": "w0", "model": "m", "logprobs_mode": "raw", "state": "serving"}
    return Engine(url=url, epoch=0, **about)


def change(registry, rng, version):
    """Do to the fleet one thing that operators, trainers and gateways do."""
    url, known = rng.choice(URLS), {engine.url for engine in registry.engines()}
    match rng.choice(["register", "leave", "drain", "join", "switch", "end", "begin"]):
        case "register":
            registry.register(make_entry(url), rng.choice([None, "key"]))
        case "leave":
            registry.forget(url)
        case "drain" if url in known:
            registry.change(url, is_drained=True)
        case "join" if url in known:
            registry.change(url, is_drained=False, is_joined=True)
        case "switch" if known:
            registry.hold(known, 0.0).release(version, f"w{version}")
        case "end" if url in known:
            registry.mark_ended(msgspec.structs.replace(registry.read(url), is_pushed=True))
        case "begin" if known:
            registry.hold(known, 0.0)
        case _:
            pass


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_redis_forgets_the_fleet_is_as_the_gateway_knew_it(settings, redis, keys, seed):
    rng, settings = random.Random(seed), settings.model_copy(update={"gateway_seconds": 0.0})
    driver = EngineRegistry(redis, keys, -1.0)  # all gateways are silent for too long
    watcher = EngineWatcher(EngineRegistry(redis, keys, 0.0), "gateway", settings)
    copies = [{}]
    for number in range(1, 25):
        change(driver, rng, number)
        await watcher.refresh()
        copies.append(read_copy(redis, keys))
        before, access = driver.engines(), driver.access_keys()
        put_back(redis, keys, rng.choice(copies))
        await watcher.refresh()

        assert EngineRegistry(redis, keys).engines() == before
        assert EngineRegistry(redis, keys).access_keys().items() >= access.items()


async def test_a_switch_in_which_redis_is_emptied_ends_with_the_new_version(redis, keys):
    registry = EngineRegistry(redis, keys, 0.0)
    for url in URLS:
        registry.register(make_entry(url))
    hold = registry.hold(URLS, 0.0)
    put_back(redis, keys, {})
    hold.release(1, "w1")

    assert [(engine.url, engine.version, engine.state) for engine in registry.engines()] == [
        (url, 1, "serving") for url in URLS
    ]


async def test_a_report_that_redis_forgets_is_made_again(settings, redis, keys):
    """Else a trainer waits until ``drain_seconds`` for a gateway that has nothing in flight."""
    registry = EngineRegistry(redis, keys, 60.0)
    registry.register(make_entry(URLS[0]))
    watcher = EngineWatcher(EngineRegistry(redis, keys, 60.0), "gateway", settings)
    await watcher.refresh()
    copy = read_copy(redis, keys)
    following = asyncio.create_task(watcher.run())
    holding = asyncio.create_task(asyncio.to_thread(registry.hold, URLS[:1], 60.0))
    (await holding).cancel()
    put_back(redis, keys, copy)
    hold = await asyncio.to_thread(registry.hold, URLS[:1], 60.0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following

    assert registry.read(URLS[0]).state == "loading"
    hold.cancel()


async def test_a_gateway_serves_on_and_says_what_happened(gateway, redis, keys, until):
    await gateway.chat(await gateway.open(), "hello")
    put_back(redis, keys, {})
    await until(lambda: gateway.registry.read(gateway.engine.url) is not None)

    assert (await gateway.chat(await gateway.open(), "hello"))[0] == 200
    await until(lambda: get_policy(redis, keys, "default", 0) is not None)
    await until(lambda: read_loss(redis, keys) is not None)


async def test_no_engine_is_no_health(gateway):
    async def read_health():
        async with gateway.session.get(f"{gateway.url}/health") as reply:
            return reply.status, (await reply.json())["status"]

    assert await read_health() == (200, "ok")
    await gateway.post("/engines/drain", {"url": gateway.engine.url})
    assert (await read_health())[0] == 503
    await gateway.post("/engines", {"url": gateway.engine.url})
    assert await read_health() == (200, "ok")
    await gateway.post("/engines/leave", {"url": gateway.engine.url})

    status, found = await read_health()
    assert (status, "no engine is registered" in found) == (503, True)


def test_an_engine_that_leaves_and_comes_back_is_new(redis, keys):
    registry, other = EngineRegistry(redis, keys), EngineRegistry(redis, keys)
    registry.register(make_entry(URLS[0]))
    registry.change(URLS[0], is_drained=True)
    (known,) = other.engines()
    registry.forget(URLS[0])
    registry.register(make_entry(URLS[0]))

    assert other.restore_lost(other.engines()) == []
    (found,) = other.engines()
    assert (found.is_drained, found.revision > known.revision) == (False, True)
    with pytest.raises(EngineError, match="another driver moved"):
        registry.serve({URLS[0]: known.epoch}, {URLS[0]: {}})


def test_threads_that_notice_at_once_that_an_engine_left_agree(redis, keys):
    registry, other, num_threads = EngineRegistry(redis, keys), EngineRegistry(redis, keys), 8

    def notice(barrier):
        barrier.wait()
        return registry.restore_lost([])

    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(20):
            other.register(make_entry(URLS[0]))
            registry.engines()
            other.forget(URLS[0])
            assert list(pool.map(notice, [Barrier(num_threads)] * num_threads)) == [[]] * num_threads
