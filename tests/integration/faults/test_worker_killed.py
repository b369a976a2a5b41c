"""A worker that is killed in mid-rollout: the rollout is handed on, its steps are stored, nothing counts twice."""

import os
import signal
import subprocess
import sys

import pytest

from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ...processes import is_running

AGENT = """
import asyncio, json, os, pathlib
import openai

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")

async def agent(task, rollout):
    for turn in range(3):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"turn {turn}"}])
        if rollout.attempt == 0 and turn == 1:
            await asyncio.sleep(600)
    return 1.0
"""


@pytest.fixture
def pace():
    return {"lease_seconds": 4.0, "heartbeat_seconds": 0.2}


def test_killed_in_mid_rollout(stack, dispatcher, start_worker, write_module, wait_until):
    write_module("agent", AGENT)
    store = open_store(stack.settings)
    first = start_worker("agent:agent", "--slots", "2")
    (group_id,) = dispatcher.submit([Task(id="t", run="default", group_size=2)])
    wait_until(lambda: [row.num_steps for row in store.query(task="t").items] == [2, 2], 60)

    first.send_signal(signal.SIGKILL)
    start_worker("agent:agent", "--slots", "2")
    (group,) = dispatcher.wait([group_id], timeout=60)

    assert (group.is_closed, group.num_accepted) == (True, 2)
    wait_until(lambda: len(store.query(task="t", accepted=True).items) == 2)
    wait_until(lambda: len(store.query(task="t", status="lost").items) == 2)
    lost = [store.get(row.trajectory_id) for row in store.query(task="t", status="lost").items]
    assert [(len(one.steps), one.outcome.cause, one.reward, one.accepted) for one in lost] == [
        (2, "infra", None, None)
    ] * 2
    delivery = next(store.follow("trainer", "default", wait_seconds=30.0))
    assert [one.trajectory_id for one in delivery.trajectories] == [f"{group_id}.0-1", f"{group_id}.1-1"]
    assert [one.reward for one in delivery.trajectories] == [1.0, 1.0]
    delivery.ack()
    assert list(store.follow("trainer", "default", wait_seconds=0.5)) == []


def test_what_a_killed_worker_started_ends_with_it(dispatcher, start_worker, tmp_path, wait_until):
    (tmp_path / "agent.sh").write_text("sleep 0.3; echo $$ > pid; sleep 600 & wait")
    worker = start_worker("--slots", "1", "--", "sh", str(tmp_path / "agent.sh"))
    dispatcher.submit([Task(id="t", run="default")])
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), 60)

    worker.send_signal(signal.SIGKILL)

    wait_until(lambda: not is_running(int(pid_file.read_text())))


def test_a_worker_ends_on_sigterm_with_status_0(dispatcher, start_worker, write_module, wait_until):
    write_module("agent", AGENT)
    worker = start_worker("agent:agent", "--drain", "0")
    groups = dispatcher.submit([Task(id="t", run="default")])
    wait_until(lambda: dispatcher.rollouts(groups)[0].status == "running", 60)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["nobody:agent"], "nobody:agent"),
        (["nameless"], "registered name"),
        (["json:dumps"], "coroutine function"),
        ([], "TARGET or '-- COMMAND'"),
        (["--", "no-such-program"], "no-such-program"),
        (["json:dumps", "--scorer", "no:where"], "no:where"),
    ],
)
def test_an_agent_that_there_is_not_is_one_sentence(settings, arguments, finding):
    command = [sys.executable, "-m", "agent_layer.cli", "work", *arguments]
    environment = os.environ | settings.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert finding in done.stderr
