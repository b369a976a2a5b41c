"""The evaluation of an endpoint runs as its README describes."""

import os
import sys
from pathlib import Path

import pytest

from ...waiting import run

FOLDER = Path(__file__).parents[3] / "examples" / "evaluate_endpoint"


@pytest.mark.long
def test_the_example_is_evaluated_with_its_script(settings):
    arguments = ["agent:agent", "tasks.jsonl", "-n", "1", "--round", "example", "--model", "script.py:calculate"]
    command = [sys.executable, "-m", "agent_layer.cli", "eval", *arguments]
    done = run(command, 200, cwd=FOLDER, env=os.environ | settings.environment())

    assert done.returncode == 0, done.stderr
    assert "rollouts     3 of 3 (3 tasks, n = 1)" in done.stdout
    assert "pass@1       0.667" in done.stdout
