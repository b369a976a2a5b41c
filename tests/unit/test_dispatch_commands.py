"""This file holds the commands of the dispatcher as a person types them."""

import json
import subprocess
import sys
import threading

import pytest

from agent_layer.dispatcher import Queue, Report
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content


@pytest.fixture
def agent_layer(settings, tmp_path):
    """Run a command in a process of its own: ``agent_layer("submit", "x.jsonl")`` gives (exit status, out, err)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "agent_layer.cli", *arguments],
            env=settings.environment() | {"PATH": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_tasks_are_submitted_and_shown(agent_layer, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": 1}\n{"id": "b", "input": 2}\n')

    assert agent_layer("submit", "tasks.jsonl", "--group-size", "3", "--run", "r")[:2] == (
        0,
        "submitted 2 tasks, 6 rollouts, to run r\n",
    )
    _, out, _ = agent_layer("tasks", "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["task_id"], row["run"], row["rollouts"]) for row in rows] == [
        ("a", "r", {"queued": 3}),
        ("b", "r", {"queued": 3}),
    ]
    assert agent_layer("dead")[:2] == (0, "none\n")


def test_a_bad_line_is_one_sentence_and_nothing_is_queued(agent_layer, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": 1}\n{"id": "b", "inptu": 2}\n')

    status, _, err = agent_layer("submit", "tasks.jsonl")
    assert (status, err.count("\n")) == (2, 1)
    assert "tasks.jsonl line 2" in err
    assert agent_layer("groups")[1] == "none\n"


def test_waiting_says_how_much_was_accepted_and_ships_what_killed_workers_left(
    agent_layer, tmp_path, redis, keys, settings, wait_until
):
    recorder = Recorder(settings)
    left = recorder.append(Content(trajectory_id="r.0-0", hash="h", body=b"1"))
    recorder.close()
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": 1, "group_size": 2}\n')
    queue = Queue(redis, keys, settings)

    def work():
        first, second = [queue.claim("w", 1, wait_seconds=30)[0] for _ in range(2)]
        queue.settle([Report(lease=first, ending="completed"), Report(lease=second, ending="dead", error="user: no")])

    working = threading.Thread(target=work)
    working.start()
    status, out, err = agent_layer("submit", "tasks.jsonl", "--wait")
    working.join()

    assert (status, out.splitlines()[-1]) == (1, "accepted 1 of 2 rollouts")
    assert "'agent-layer dead' shows" in err
    assert json.loads(agent_layer("dead", "--format", "jsonl")[1])["errors"] == ["user: no"]
    wait_until(lambda: not (settings.log_dir / f"{left}.log").exists(), 20)
