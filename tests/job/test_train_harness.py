"""``train CONFIG --harness NAME``: an installed coding agent in a sandbox, with prompts above what vLLM reads at once.

The agent is declared by a package, as users declare one. Its first request is about as long as those of real ones.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.harnesses import Installation
from envs.harnesses.registry import find_harness
from trainer_adapter.data.samples import samples_of

from ..boxes import require_kind
from ..documents import ROOT
from ..waiting import run, scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NUM_STEPS, GROUP_SIZE = 2, 8
AT_ONCE = 2048
"""Tokens that vLLM reads of a prompt at once, unless told otherwise."""
MODULE = """
from pathlib import Path
from envs.harnesses import Harness

HARNESS = Harness(
    name="walker", package="walker", version="1", installer="pypi", program="walker", dialect="chat",
    arguments=["$base_url", "$prompt"], environment={{"KEY": "$api_key"}}, lock=Path({lock!r}),
)
"""
PROGRAM = """#!/usr/bin/python3 -I
import json, os, sys, urllib.request

url, prompt = sys.argv[1:]
messages = [{"role": "system", "content": "Call a tool where one helps. " * 100}, {"role": "user", "content": prompt}]
numbers = {"type": "object", "properties": {name: {"type": "integer"} for name in "ab"}, "required": ["a", "b"]}
tools = [{"type": "function", "function": {"name": "add", "parameters": numbers}}]
headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
for turn in range(6):
    body = {"model": "m", "messages": messages, "tools": tools, "max_tokens": 16, "seed": turn}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    messages.append({"role": "assistant", "content": message["content"], **({"tool_calls": calls} if calls else {})})
    messages += [{"role": "tool", "tool_call_id": one["id"], "content": "3"} for one in calls]
    if not calls:
        break
print(sum(one["role"] == "tool" for one in messages))
"""
SCORE = "def count_calls(task, trajectory, result):\n    return float(result)\n"


@pytest.fixture
def home(tmp_path):
    """Directory of the layer, where a sandbox can be shown what is installed in it."""
    home = Path(f"/var/tmp/agent-layer-train-test-{os.getpid()}")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    yield home
    shutil.copytree(home / "logs", tmp_path / "logs", dirs_exist_ok=True)
    shutil.rmtree(home)


@pytest.fixture
def package(home, tmp_path, monkeypatch):
    """Folder of a package that registers the agent, which is installed, and of its scorer."""
    package, lock = tmp_path / "package", tmp_path / "lock"
    (package / "walker-1.dist-info").mkdir(parents=True)
    (package / "walker_harness.py").write_text(MODULE.format(lock=str(lock)))
    (package / "walker_score.py").write_text(SCORE)
    (package / "walker-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: walker\nVersion: 1\n")
    (package / "walker-1.dist-info/entry_points.txt").write_text(
        "[agent_layer.harnesses]\nwalker = walker_harness:HARNESS\n"
    )
    lock.mkdir()
    monkeypatch.syspath_prepend(package)
    installation = Installation(Settings(dir=home), find_harness("walker"))
    installation.program.parent.mkdir(parents=True)
    installation.program.write_text(PROGRAM)
    installation.program.chmod(0o700)
    marker = {"version": "1", "lock_hash": installation._hash_lock(), "interpreter": "Python"}
    (installation.folder / "installed.json").write_bytes(msgspec.json.encode(marker))
    return package


@pytest.fixture
def config(tmp_path):
    from .calling_model import write_calling_model  # noqa: PLC0415  # torch takes seconds

    task = {"id": "add", "input": "What is 1 plus 2?", "scorer": "walker_score:count_calls"}
    (tmp_path / "tasks.jsonl").write_bytes(msgspec.json.encode(task))
    options = {
        "model": str(write_calling_model(tmp_path / "model")),
        "tasks": "tasks.jsonl",
        "steps": NUM_STEPS,
        "rollouts": {"group_size": GROUP_SIZE, "max_staleness": 0},
    }
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(options))
    return tmp_path / "run.json"


def test_a_coding_agent_in_a_sandbox_is_trained_on_prompts_longer_than_vllm_reads_at_once(home, package, config):
    require_kind("session", "oci", "docker", "namespace")
    settings = Settings(dir=home, engine_seconds=scaled(300))
    path = os.pathsep.join([str(package), str(ROOT)])
    command = [sys.executable, "-m", "agent_layer.cli", "train", str(config), "--harness", "walker", "--slots", "4"]

    environment = {**os.environ, **settings.environment(), "PYTHONPATH": path}
    done = run([*command, "--no-view"], 1200, cwd=package, env=environment)

    assert done.returncode == 0, done.stdout + done.stderr
    store = open_store(settings)
    trajectories = [store.get(row.trajectory_id) for row in store.query(run=settings.run, accepted=True).items]
    assert len(trajectories) == NUM_STEPS * GROUP_SIZE
    assert all(one.outcome.sandbox is not None for one in trajectories)
    for one in trajectories:
        assert {(step.status, step.capture_level, step.error) for step in one.steps} == {("ok", "tokens", None)}
        assert all(len(step.prompt_token_ids) > AT_ONCE for step in one.steps)
        num_sampled = sum(len(step.action.response_token_ids) for step in one.steps)
        assert sum(sum(sample.loss_mask) for sample in samples_of(one).samples) == num_sampled > 0
    steps = read_progress(progress_path(settings, settings.run))
    assert [(step.policy_version, step.num_rollouts, step.untrainable) for step in steps] == [
        (number, GROUP_SIZE, {}) for number in range(1, NUM_STEPS + 1)
    ]
    assert any(step.metrics["grad_norm"] > 0 for step in steps)
    assert steps[0].metrics["logprob_gap"] < 1e-3  # else the trainer reads other tokens than vLLM
