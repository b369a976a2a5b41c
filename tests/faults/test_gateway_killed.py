"""A gateway that is killed between an answer and its shipping loses no step, and nothing of it is accepted."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from agent_layer.local.scripted import ScriptedEngine, serve_in_thread
from agent_layer.local.stack import run_stack
from agent_layer.store.store import open_store


def post(url, body, key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=30) as reply:
        return json.load(reply)


def kill_what_is_leashed(leashed):
    leash = leashed.process.pid
    for child in Path(f"/proc/{leash}/task/{leash}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    leashed.process.wait(10)


@pytest.mark.parametrize("stream", [False, True])
def test_killed_right_after_an_answer(settings, wait_until, stream):
    slow = settings.model_copy(update={"log_roll_seconds": 60.0})  # nothing is shipped before the kill
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(slow, engine.url) as stack:
        gateway, key = stack.settings.gateway_url, stack.settings.api_key
        opened = post(f"{gateway}/rollouts", {"task_id": "t1", "run": "r"}, key)
        url, body = f"{opened['base_url']}/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}
        if stream:
            headers = {"Authorization": f"Bearer {opened['api_key']}", "Content-Type": "application/json"}
            request = urllib.request.Request(url, json.dumps(body | {"stream": True}).encode(), headers)
            with urllib.request.urlopen(request, timeout=30) as reply:
                assert any(line.startswith(b"data: [DONE]") for line in reply)
        else:
            post(url, body, opened["api_key"])
        kill_what_is_leashed(stack.processes["gateway"])

        store = open_store(settings)
        wait_until(lambda: [row.num_steps for row in store.query(run="r").items] == [1])
        trajectory = store.get(opened["trajectory_id"])

    (step,) = trajectory.steps
    assert step.status == "ok"
    assert list(step.action.response_token_ids) == engine.calls[-1].token_ids[0]
    assert trajectory.accepted is trajectory.outcome is None
