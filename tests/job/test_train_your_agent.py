"""The example that newcomers copy trains: one file with graph, tasks and reward, run as their program."""

import os
import sys

import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings

from ..documents import ROOT
from ..waiting import run


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_example_trains_its_graph_by_its_reward(tmp_path, model):
    settings = Settings(dir=tmp_path / "home")
    program = [sys.executable, "examples/train_your_agent.py", str(model), "2"]
    variables = os.environ | settings.environment()
    done = run(program, 600, cwd=ROOT, env=variables)

    assert done.returncode == 0, done.stdout + done.stderr
    steps = read_progress(progress_path(settings, settings.run))
    assert [step.policy_version for step in steps] == [1, 2]
    assert [step.num_rollouts for step in steps] == [32, 32]
    assert [step.num_calls for step in steps] == [64, 64]
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    assert done.stdout.splitlines() == [str(step) for step in steps]


def test_it_is_short_enough_to_copy():
    assert len((ROOT / "examples/train_your_agent.py").read_text().splitlines()) <= 40
