"""An attempt has one recorded start, and none before a gateway opened it."""

import asyncio
from dataclasses import replace

import pytest

from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.segments.format import list_segments
from envs import resumable
from tracer.transport.gateway_client import GatewayClient

from ...queues import open_queue
from .conftest import make_task


async def answer(_task, _rollout):
    return 1.0


def read_starts(store):
    """Return the different recorded starts of each attempt, from the objects alone."""
    found = {}
    for key in list_segments(store.keys, store.objects):
        for trajectory_id, records in read_segment(store.objects, key).records.items():
            starts = {(one.worker, one.started_at) for one in records if isinstance(one, AttemptStarted)}
            found.setdefault(trajectory_id, set()).update(starts)
    return {trajectory_id: starts for trajectory_id, starts in found.items() if starts}


async def test_a_number_that_was_used_before_gets_no_second_start(harness, until):
    (group,) = await harness.submit(make_task())
    gateway = GatewayClient(harness.settings.gateway_url, harness.settings.api_key)
    used = OpenRequest(task_id="t", run="default", rollout_id=f"{group}.0", attempt=0, lease_token=1)  # as its recorder
    await asyncio.to_thread(gateway.open, used)

    async with harness.worker(answer):
        await harness.wait([group])
    await until(lambda: harness.store.query(accepted=True).items)

    starts = read_starts(harness.store)
    assert {name: len(found) for name, found in starts.items()} == {f"{group}.0-0": 1, f"{group}.0-1": 1}


@pytest.mark.parametrize("refuses", ["scorer", "gateway", "task", "log"])
async def test_an_attempt_that_no_gateway_opened_leaves_an_error_in_the_queue_and_no_row(
    harness, write_module, until, refuses
):
    task, changes = make_task(), {}
    match refuses:
        case "scorer":
            task = make_task(scorer="no_such_module:score")
        case "gateway":
            changes = {"gateway_url": "http://127.0.0.1:1", "connect_seconds": 0.5}
        case "task":
            task = make_task(sampling={"messages": []})
        case "log":
            write_module("blots", "def out(text):\n    assert 'secret' not in text\n    return text\n")
            task, changes = make_task(input="secret"), {"redact": "blots:out"}
    strict = replace(harness, settings=harness.settings.model_copy(update=changes))
    async with strict.worker(answer):
        (group,) = await asyncio.to_thread(open_queue(harness.dispatcher).add, [task])
        await until(lambda: harness.dispatcher.rollouts([group])[0].errors)
    async with harness.worker(answer):  # whatever was recorded before is stored by then
        other = await harness.submit(make_task("other"))
        await harness.wait(other)
    await until(lambda: harness.store.query(task="other", accepted=True).items)

    assert [row for row in harness.store.query(limit=100).items if not row.accepted] == []


async def test_an_attempt_that_goes_on_elsewhere_keeps_its_first_start(harness, until):
    @resumable
    async def agent(_task, rollout):
        for number in range(rollout.saved or 0, 3):
            await rollout.save(number + 1)
            while rollout.saved is None:  # the first holder
                await asyncio.sleep(0.05)
                await rollout.save(number + 1)
        return 1.0

    async with harness.worker(agent):
        groups = await harness.submit(make_task())
        await until(lambda: harness.dispatcher.rollouts(groups)[0].checkpoint)
    async with harness.worker(agent):
        await harness.wait(groups)
    (trajectory,) = await harness.trajectories(1)

    ((start,),) = read_starts(harness.store).values()
    assert trajectory.resumes
    assert start == (trajectory.started.worker, trajectory.started.started_at)
