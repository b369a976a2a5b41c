"""The example runs as its README describes, and its output shows its steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.store import open_store

ROOT = Path(__file__).parents[3]


def run(settings, *arguments):
    environment = os.environ | settings.environment() | {"LANGSMITH_TRACING": "false"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=110,
    )
    return done.stdout


@pytest.mark.timeout(300)
def test_the_example_is_traced_and_its_steps_are_found(settings):
    said = run(settings, "examples.langgraph_agent.main")

    assert "oslo: 2415.0 NOK" in said
    assert "FlushReport(pending=0, lost=0" in said
    page = open_store(settings).query(run="example", order="oldest")
    assert [(row.task_id, row.reward, row.accepted) for row in page.items] == [
        ("lisbon", 1.0, True),
        ("oslo", 1.0, True),
        ("athens", 0.0, True),
    ]
    (command,) = [line for line in said.splitlines() if "--step" in line]
    (row,) = run(settings, "agent_layer.cli", *command.split()[1:]).splitlines()
    step = json.loads(row)["step"]
    assert step["state"]["framework"]["messages"] == step["state"]["messages"]
    assert [(one["name"], one["output"]) for one in step["observations"]] == [("convert", "2415.0")]
