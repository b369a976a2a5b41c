"""Workers are replaced under load, one after another: no rollout notices."""

import signal

import pytest

from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ..waiting import scaled, wait_for_exit

AGENT = """
import asyncio
import openai

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")

async def agent(task, rollout):
    for turn in range(2):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"turn {turn}"}])
        await asyncio.sleep(0.2)
    return 1.0
"""

WORKERS, SLOTS, WAVE = 2, 4, 8
"""Processes; agents at the same time in each; groups of two that are submitted at a time."""


@pytest.fixture
def pace():
    return {"lease_seconds": scaled(5.0), "heartbeat_seconds": 0.2}


@pytest.fixture
def supervisor(start_worker, write_module):
    write_module("agent", AGENT)
    return start_worker("agent:agent", "--on=processes", f"--workers={WORKERS}", f"--slots={SLOTS}", "--drain=60")


@pytest.mark.timeout(1800)
def test_every_rollout_ends_once_while_each_worker_is_replaced(
    stack, supervisor, dispatcher, worker_output, wait_until
):
    groups = []
    wait_until(lambda: len(dispatcher.workers()) == WORKERS, log=worker_output)
    before = {worker.worker for worker in dispatcher.workers()}

    def are_replaced_under_load():
        if dispatcher.stats().num_queued < WORKERS * SLOTS:
            tasks = [Task(id=f"t{len(groups) + n}", run="default", group_size=2) for n in range(WAVE)]
            groups.extend(dispatcher.submit(tasks))
        now = {worker.worker for worker in dispatcher.workers()}
        return len(now) == WORKERS and not now & before

    wait_until(lambda: are_replaced_under_load() or len(groups) > 2 * WAVE, log=worker_output)
    supervisor.send_signal(signal.SIGHUP)
    wait_until(are_replaced_under_load, 90, log=worker_output)
    states = dispatcher.wait(groups, scaled(90))
    supervisor.send_signal(signal.SIGTERM)

    assert wait_for_exit(supervisor, log=worker_output) == 0
    assert {group.num_accepted for group in states} == {2}
    rollouts = [one for at in range(0, len(groups), 100) for one in dispatcher.rollouts(groups[at : at + 100])]
    assert len(rollouts) == 2 * len(groups)
    assert {(one.status, one.num_attempts, one.num_failures) for one in rollouts} == {("completed", 1, 0)}
    store = open_store(stack.settings)
    with store.redis:
        stored = store.query(limit=10_000).items
    assert len(stored) == len({row.trajectory_id for row in stored}) == len(rollouts)
    assert {row.accepted for row in stored} == {True}
    by_old = sum(one.worker in before for one in rollouts)
    assert 0 < by_old < len(rollouts)
