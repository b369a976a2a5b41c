"""A worker that is killed in mid-rollout: the rollout is handed on, its steps are stored, nothing counts twice."""

import signal

import pytest

from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ...processes import is_running
from ...waiting import scaled
from ...working import ASK

AGENT = (
    ASK
    + """
import asyncio

async def agent(task, rollout):
    for turn in range(3):
        await ask(rollout, f"turn {turn}")
        if rollout.attempt == 0 and turn == 1:
            await asyncio.sleep(600)
    return 1.0
"""
)


@pytest.fixture
def pace():
    return {"lease_seconds": scaled(3.0), "heartbeat_seconds": 0.2}


def test_killed_in_mid_rollout(stack, dispatcher, start_worker, worker_output, write_module, wait_until):
    write_module("agent", AGENT)
    store = open_store(stack.settings)
    first = start_worker("agent:agent", "--slots", "2")
    (group_id,) = dispatcher.submit([Task(id="t", run="default", group_size=2)])
    wait_until(lambda: [row.num_steps for row in store.query(task="t").items] == [2, 2], log=worker_output)

    first.send_signal(signal.SIGKILL)
    start_worker("agent:agent", "--slots", "2")
    (group,) = dispatcher.wait([group_id], timeout=scaled(60))

    assert (group.is_closed, group.num_accepted) == (True, 2)
    wait_until(lambda: len(store.query(task="t", accepted=True).items) == 2)
    wait_until(lambda: len(store.query(task="t", status="lost").items) == 2)
    lost = [store.get(row.trajectory_id) for row in store.query(task="t", status="lost").items]
    assert [(len(one.steps), one.outcome.cause, one.reward, one.accepted) for one in lost] == [
        (2, "infra", None, None)
    ] * 2
    delivery = next(store.follow("trainer", "default", wait_seconds=scaled(30.0)))
    assert [one.trajectory_id for one in delivery.trajectories] == [f"{group_id}.0-1", f"{group_id}.1-1"]
    assert [one.reward for one in delivery.trajectories] == [1.0, 1.0]
    delivery.ack()
    assert list(store.follow("trainer", "default", wait_seconds=0.5)) == []


def test_what_a_killed_worker_started_ends_with_it(dispatcher, start_worker, worker_output, tmp_path, wait_until):
    (tmp_path / "agent.sh").write_text(f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    worker = start_worker("--slots", "1", "--", "sh", str(tmp_path / "agent.sh"))
    dispatcher.submit([Task(id="t", run="default")])
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), log=worker_output)

    worker.send_signal(signal.SIGKILL)

    wait_until(lambda: not is_running(int(pid_file.read_text())))


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["nobody:agent"], "nobody:agent"),
        (["nameless"], "registered name"),
        (["json:dumps"], "coroutine function"),
        ([], "TARGET, --harness or '-- COMMAND'"),
        (["--", "no-such-program"], "no-such-program"),
        (["json:dumps", "--scorer", "no:where"], "no:where"),
    ],
)
def test_an_agent_that_there_is_not_is_one_sentence(agent_layer, arguments, finding):
    status, _, errors = agent_layer("work", *arguments)

    assert (status, errors.count("\n")) == (2, 1)
    assert finding in errors
