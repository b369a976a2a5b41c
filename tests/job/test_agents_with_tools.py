"""A LangGraph agent with tools, as README shows it, is trained, evaluated and traced in one call each."""

import json
import os
import signal
import subprocess
import sys

import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import open_store

from ..documents import ROOT
from ..waiting import read_line, run, wait_for_exit

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

EXAMPLE = ROOT / "examples/train_your_agent.py"
TRACED = """
import tracer
from examples.train_your_agent import graph

tracer.init()
with tracer.rollout(task="traced") as rollout:
    for _ in range(16):
        graph.invoke({"messages": [("user", "What is 6 times 7?")]})
    rollout.reward(1.0)
print(tracer.flush())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from .calling_model import write_calling_model  # noqa: PLC0415  # torch takes seconds

    return write_calling_model(tmp_path_factory.mktemp("calling") / "model")


@pytest.fixture
def settings(tmp_path):
    return Settings(dir=tmp_path / "home")


def python(settings, *arguments, **variables):
    done = run(
        [sys.executable, *map(str, arguments)], 600, cwd=ROOT, env=os.environ | settings.environment() | variables
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def read_steps(settings, **query):
    """All stored steps of the policy, by trajectory."""
    store = open_store(settings)
    rows = store.query(limit=1000, **query).items
    return [[step for step in store.get(row.trajectory_id).steps if step.action is not None] for row in rows]


def check_tools_were_called(rollouts):
    """Check that each call was parsed, and that its tokens are those that the engine sampled; return their number."""
    policy = [step for steps in rollouts for step in steps]
    calls = [call for step in policy for call in step.action.message.get("tool_calls") or []]

    assert {call["function"]["name"] for call in calls} == {"add"}
    assert all(json.loads(call["function"]["arguments"]) == {"a": 1, "b": 2} for call in calls)
    assert {step.capture_level for step in policy} == {"tokens"}
    assert all(len(step.action.logprobs) == len(step.action.response_token_ids) > 0 for step in policy)
    return len(calls)


def test_it_is_trained(settings, model):
    done = python(settings, EXAMPLE, model, 2)

    steps = read_progress(progress_path(settings, settings.run))
    assert [step.policy_version for step in steps] == [1, 2]
    assert [step.num_rollouts for step in steps] == [32, 32]
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    assert done.stdout.splitlines() == [str(step) for step in steps]
    num_calls = check_tools_were_called(read_steps(settings, run=settings.run))
    assert num_calls >= 20


def test_it_is_evaluated(settings, model, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "input": "What is 1 times 2?", "grading": "2"}\n')
    agent, scorer = (f"examples.train_your_agent:{name}" for name in ("graph", "score"))
    words = ["eval", agent, tasks, "--model", model, "-n", 16, "--scorer", scorer, "--round", "r", "--format", "jsonl"]
    done = python(settings, "-m", "agent_layer.cli", *words)

    assert json.loads(done.stdout.splitlines()[0])["figures"]["num_rewards"] == 16
    num_calls = check_tools_were_called(read_steps(settings, run="eval.r"))
    assert num_calls >= 4


def test_it_is_traced(settings, model):
    command = [sys.executable, "-m", "agent_layer.cli", "up", "--model", str(model), "--port", "0", "--no-view"]
    environment = os.environ | settings.environment()
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    try:
        exported = {}
        while "AGENT_LAYER_API_KEY" not in exported:
            name, _, value = (
                read_line(up, 300, settings.dir / "logs" / "vllm.log").removeprefix("export ").partition("=")
            )
            exported[name] = value.strip()
        python(settings, "-c", TRACED, **exported)
    finally:
        up.send_signal(signal.SIGINT)
        wait_for_exit(up)
        up.stdout.close()
    (steps,) = read_steps(settings, task="traced")

    num_calls = check_tools_were_called([steps])
    assert num_calls >= 2


def test_it_is_short_enough_to_copy():
    assert len(EXAMPLE.read_text().splitlines()) <= 50
