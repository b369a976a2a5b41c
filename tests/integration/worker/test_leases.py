"""A worker whose leases end, that must stop, or whose gateway is away."""

import asyncio
from dataclasses import replace

import openai
import pytest

from agent_layer.dispatcher import WorkerQueue
from agent_layer.schema.wire.gateway_api import OpenRequest
from tracer.transport.gateway_client import GatewayClient

from ...queues import open_queue
from ...waiting import scaled, wait_until


async def test_a_cancelled_rollout_ends_and_counts_for_nothing(harness, task, until):
    started, ended = asyncio.Event(), asyncio.Event()

    async def agent(_view, _rollout):
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async with harness.worker(agent):
        groups = await harness.submit(task())
        await until(started.is_set)
        await asyncio.to_thread(harness.dispatcher.cancel, groups)
        await until(ended.is_set)

    assert harness.dispatcher.groups(groups)[0].num_accepted == 0


async def test_a_rollout_that_is_cancelled_while_its_worker_claims_it_ends_at_once(harness, task, until, caplog):
    rare = harness.settings.model_copy(update={"heartbeat_seconds": 1000.0, "lease_seconds": 2000.0})

    async def agent(_view, _rollout):
        await asyncio.sleep(600)

    class SlowQueue(WorkerQueue):
        def claim(self, *args, **options):
            if leases := super().claim(*args, **options):
                num_beats = worker._heartbeat.num_beats
                harness.dispatcher.cancel([lease.group_id for lease in leases])
                wait_until(lambda: worker._heartbeat.num_beats > num_beats)
            return leases

    queue = open_queue(harness.dispatcher)
    async with replace(harness, settings=rare).worker(agent) as worker:
        worker._queue = SlowQueue(queue.redis, queue.keys, rare)
        await harness.submit(task())
        await until(lambda: "why=cancel" in caplog.text)


async def test_a_worker_that_stops_gives_back_what_runs_at_once(harness, task, until):
    started = asyncio.Event()

    async def agent(_view, rollout):
        started.set()
        await asyncio.sleep(600 if rollout.attempt == 0 else 0)
        return 1.0

    async with harness.worker(agent) as worker:
        groups = await harness.submit(task())
        await until(started.is_set)
        worker.stop()
    (rollout,) = harness.dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)
    assert harness.dispatcher.workers() == []

    async with harness.worker(agent):
        await harness.wait(groups)
    assert harness.dispatcher.rollouts(groups)[0].accepted == 1


async def test_a_gateway_that_is_away_costs_no_attempt(harness, task, chatter, until):
    away = harness.settings.model_copy(update={"gateway_url": "http://127.0.0.1:1", "connect_seconds": 0.5})
    absent = replace(harness, settings=away)
    async with absent.worker(chatter):
        groups = await harness.submit(task())
        await until(lambda: harness.dispatcher.rollouts(groups)[0].num_attempts >= 3)

    assert harness.dispatcher.rollouts(groups)[0].num_failures == 0


async def test_a_task_that_the_gateway_refuses_dies_and_keeps_no_other_from_running(harness, task):
    async def agent(_view, _rollout):
        return 1.0

    refused, others = task("refused", sampling={"messages": []}), [task(f"t{number}") for number in range(8)]
    async with harness.worker(agent, slots=1):
        groups = await asyncio.to_thread(open_queue(harness.dispatcher).add, [refused, *others])
        states = await harness.wait(groups)

    assert [state.num_accepted for state in states] == [0] + [1] * 8
    (dead,) = harness.dispatcher.dead()
    assert dead.num_attempts == 1
    assert dead.errors[0].startswith("user: ")
    assert "expected sampling" in dead.errors[0]


async def test_a_task_that_cannot_be_recorded_dies_and_keeps_no_other_from_running(harness, task, write_module):
    write_module("blots", "def out(text):\n    assert 'secret' not in text\n    return text\n")
    careful = replace(harness, settings=harness.settings.model_copy(update={"redact": "blots:out"}))

    async def agent(_view, _rollout):
        return 1.0

    async with careful.worker(agent, slots=1):
        tasks = [task("refused", input="secret"), *[task(f"t{number}") for number in range(8)]]
        groups = await harness.submit(*tasks)
        states = await harness.wait(groups)

    assert [state.num_accepted for state in states] == [0] + [1] * 8
    assert [dead.num_attempts for dead in harness.dispatcher.dead()] == [1]


def lapses(harness, rollout):
    """Let a lease lapse; whether it has, which a heartbeat in between prevents."""
    queue = open_queue(harness.dispatcher)
    queue.redis.zadd(queue.keys.queue("leases"), {rollout: 0}, xx=True)
    queue.reap()
    (state,) = harness.dispatcher.rollouts([rollout.rpartition(".")[0]])
    return state.num_failures == 1


async def test_an_agent_whose_lease_is_lost_is_ended_and_counts_for_nothing(harness, task, until):
    held, ended = asyncio.Event(), asyncio.Event()

    async def agent(_view, rollout):
        if rollout.attempt == 0:
            held.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()
        return 1.0

    async with harness.worker(agent, slots=1), harness.worker(agent, slots=1):
        groups = await harness.submit(task())
        await until(held.is_set)
        await until(lambda: lapses(harness, f"{groups[0]}.0"))
        await until(ended.is_set)
        await harness.wait(groups)

    first, second = await harness.trajectories(1)
    assert (first.outcome.status, first.outcome.cause, first.accepted) == ("lost", "infra", None)
    assert (second.reward, second.accepted.rollout_id) == (1.0, f"{groups[0]}.0")


async def test_the_end_of_a_lease_is_logged_once_however_long_its_agent_takes_to_end(harness, task, until, caplog):
    held, go_on = asyncio.Event(), asyncio.Event()

    async def agent(_view, rollout):
        if rollout.attempt == 0:
            held.set()
            try:
                await asyncio.sleep(600)
            finally:
                await go_on.wait()
        return 1.0

    async with harness.worker(agent, slots=2) as worker:
        groups = await harness.submit(task())
        await until(held.is_set)
        await until(lambda: lapses(harness, f"{groups[0]}.0"))
        await until(lambda: "why=lost" in caplog.text)
        num_beats = worker._heartbeat.num_beats
        await until(lambda: worker._heartbeat.num_beats > num_beats + 3)
        go_on.set()
        await harness.wait(groups)

    assert caplog.text.count("why=lost") == 1


async def test_what_is_left_of_an_attempt_that_was_handed_on_can_call_no_more(harness, task):
    async def agent(_view, _rollout):
        return 1.0

    groups = await harness.submit(task())
    (lease,) = await asyncio.to_thread(open_queue(harness.dispatcher).claim, "ghost", 1)
    gateway = GatewayClient(harness.settings.gateway_url, harness.settings.api_key)
    request = OpenRequest(task_id="t", rollout_id=lease.rollout_id, attempt=0, owner="worker")
    opened = await asyncio.to_thread(gateway.open, request)
    await asyncio.to_thread(open_queue(harness.dispatcher).release, lease)
    async with harness.worker(agent):
        await harness.wait(groups)

    async with openai.AsyncOpenAI(base_url=opened.base_url, api_key=opened.api_key, max_retries=0) as client:
        with pytest.raises(openai.APIStatusError, match="rollout_closed"):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "late"}])


async def test_a_key_holds_for_as_long_as_the_lease_is_kept(harness, task, client):
    lease_seconds = scaled(1.0)

    async def agent(_view, _rollout):
        await asyncio.sleep(1.3 * lease_seconds)
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "still here"}])
        return 1.0

    short = replace(harness, settings=harness.settings.model_copy(update={"lease_seconds": lease_seconds}))
    (trajectory,) = await short.run(agent, task())

    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 1.0)
