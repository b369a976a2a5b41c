"""A worker that is killed in mid-rollout: the rollout is handed on, its steps are stored, nothing counts twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.dispatcher import connect
from agent_layer.local.scripted import ScriptedEngine, serve_in_thread
from agent_layer.local.stack import run_stack
from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

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
def stack(settings):
    quick = settings.model_copy(update={"lease_seconds": 1.0, "heartbeat_seconds": 0.2})
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(quick, engine.url) as stack:
        yield stack


@pytest.fixture
def start_worker(stack, tmp_path):
    workers = []

    def start(*arguments):
        command = [sys.executable, "-m", "agent_layer.cli", "work", *arguments]
        environment = os.environ | stack.settings.environment()
        workers.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
        worker.wait()


def test_killed_in_mid_rollout(stack, start_worker, tmp_path, wait_until):
    (tmp_path / "agent.py").write_text(AGENT)
    dispatcher, store = connect(stack.settings), open_store(stack.settings)
    first = start_worker("agent:agent", "--slots", "2")
    (group_id,) = dispatcher.submit([Task(id="t", run="default", group_size=2)])
    wait_until(lambda: [row.num_steps for row in store.query(task="t").items] == [2, 2], 30)

    first.send_signal(signal.SIGKILL)
    start_worker("agent:agent", "--slots", "2")
    (group,) = dispatcher.wait([group_id], timeout=30)

    assert (group.is_closed, group.num_accepted) == (True, 2)
    wait_until(lambda: len(store.query(task="t", accepted=True).items) == 2)
    wait_until(lambda: len(store.query(task="t", status="lost").items) == 2)
    lost = [store.get(row.trajectory_id) for row in store.query(task="t", status="lost").items]
    assert [(len(one.steps), one.outcome.cause, one.reward, one.accepted) for one in lost] == [
        (2, "infra", None, None)
    ] * 2
    (delivery,) = store.follow("trainer", "default", wait_seconds=1.0)
    assert [one.trajectory_id for one in delivery.trajectories] == [f"{group_id}.0-1", f"{group_id}.1-1"]
    assert [one.reward for one in delivery.trajectories] == [1.0, 1.0]


def test_what_a_killed_worker_started_ends_with_it(stack, start_worker, tmp_path, wait_until):
    (tmp_path / "agent.sh").write_text("sleep 0.3; echo $$ > pid; sleep 600 & wait")
    worker = start_worker("--slots", "1", "--", "sh", str(tmp_path / "agent.sh"))
    connect(stack.settings).submit([Task(id="t", run="default")])
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), 30)

    worker.send_signal(signal.SIGKILL)

    wait_until(lambda: not is_running(int(pid_file.read_text())))


def is_running(pid):
    """Whether it is there and no zombie that nobody has taken note of."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


def test_a_worker_ends_on_sigterm_with_status_0(stack, start_worker, tmp_path, wait_until):
    (tmp_path / "agent.py").write_text(AGENT)
    worker = start_worker("agent:agent")
    dispatcher = connect(stack.settings)
    groups = dispatcher.submit([Task(id="t", run="default")])
    wait_until(lambda: dispatcher.rollouts(groups)[0].status == "running", 30)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
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
