"""The example runs as its README describes, and its output shows its steps."""

import json
import os
import sys
from pathlib import Path

from agent_layer.store import open_store

from ...waiting import run

ROOT = Path(__file__).parents[3]


def test_the_example_is_traced_and_its_steps_are_found(settings, agent_layer):
    environment = os.environ | settings.environment() | {"LANGSMITH_TRACING": "false"}
    done = run([sys.executable, "-m", "examples.langgraph_agent.main"], 200, cwd=ROOT, env=environment)

    assert done.returncode == 0, done.stderr
    assert "oslo: 2415.0 NOK" in done.stdout
    assert "FlushReport(pending=0, lost=0" in done.stdout
    page = open_store(settings).query(run="example", order="oldest")
    assert [(row.task_id, row.reward, row.accepted) for row in page.items] == [
        ("lisbon", 1.0, True),
        ("oslo", 1.0, True),
        ("athens", 0.0, True),
    ]
    (command,) = [line for line in done.stdout.splitlines() if "--step" in line]
    status, out, _ = agent_layer(*command.split()[1:])
    step = json.loads(out)["step"]
    assert status == 0
    assert step["state"]["framework"]["messages"] == step["state"]["messages"]
    assert [(one["name"], one["output"]) for one in step["observations"]] == [("convert", "2415.0")]
