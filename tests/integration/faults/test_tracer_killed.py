"""An agent that is killed in the middle of a call leaves that call behind, with what it asked and from which state."""

import json
import os
import subprocess
import sys
from pathlib import Path

from agent_layer.schema.messages import resolve
from agent_layer.store import open_store

from ...waiting import read_line
from .conftest import await_shipped

ROOT = Path(__file__).parents[3]
AGENT = """
import openai, tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

def answer(asked):
    if asked.text == "last":
        print("asked", flush=True)
        engine.token_seconds = 600.0
    return "well"

with serve_in_thread(ScriptedEngine(script=answer)) as engine, tracer.rollout(task="t", run="killed"):
    client = openai.OpenAI(base_url=f"{engine.url}/v1", api_key="own")
    for text in ("first", "last"):
        tracer.state(asking=text)
        client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}])
"""


def test_a_call_in_flight_survives_kill_9(settings):
    environment = os.environ | settings.environment()
    with subprocess.Popen([sys.executable, "-c", AGENT], cwd=ROOT, env=environment, stdout=subprocess.PIPE) as agent:
        assert read_line(agent) == b"asked\n"
        agent.kill()

    store = open_store(settings)
    await_shipped(settings)
    (row,) = store.query(run="killed").items
    trajectory = store.get(row.trajectory_id)
    assert [step.status for step in trajectory.steps] == ["ok", None]
    last = trajectory.steps[1]
    assert json.loads(trajectory.contents[last.state.messages[0]])["content"] == "last"
    assert resolve(trajectory.contents, last.state.environment) == {"asking": "last"}
    assert last.parent_call == trajectory.steps[0].call_id
    assert (trajectory.outcome, trajectory.accepted) == (None, None)
