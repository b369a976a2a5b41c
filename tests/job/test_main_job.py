"""The main job on its real parts: vLLM, veRL, Redis, LangGraph; a few steps, several weight switches."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import requests

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.local.vllm import VllmServer
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.tasksets import HIGHEST
from envs.tasksets.guess_number.game import MAX_GUESSES
from trainer_adapter.demo.rollout_log import read_games

from ..waiting import run, scaled

pytestmark = pytest.mark.timeout(1200)

RUN = "demo-0"
STEPS = 2


def command(directory: Path, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "agent_layer.cli", "--dir", directory, *arguments]
    patience = {"AGENT_LAYER_ENGINE_SECONDS": str(scaled(300))}
    return run(program, seconds, env=os.environ | patience)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a short demo has run."""
    home = tmp_path_factory.mktemp("demo")
    done = command(home, "demo", "--steps", str(STEPS), seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^view: http://127\.0\.0\.1:\d+/#/run/{RUN}$", done.stderr, re.MULTILINE)
    return home


def rows(directory: Path, *filters: str) -> list[dict]:
    answered = command(directory, "query", "--run", RUN, "--format", "jsonl", *filters)
    assert answered.returncode == 0, answered.stderr
    return [json.loads(line) for line in answered.stdout.splitlines()]


def test_every_step_made_a_policy_version_and_trainer_and_engine_agree(directory):
    steps = read_progress(progress_path(Settings(dir=directory), RUN))[:STEPS]

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    gaps = [step.metrics["logprob_gap"] for step in steps if "logprob_gap" in step.metrics]
    assert gaps
    assert max(gaps) < 1e-4


def test_each_step_is_exactly_on_policy_at_its_first_minibatch(directory):
    steps = read_progress(progress_path(Settings(dir=directory), RUN))[:STEPS]

    assert [step.staleness_max for step in steps] == [0, 0]
    assert all(0 <= step.metrics["ratio_gap"] < 1e-4 for step in steps), [step.metrics["ratio_gap"] for step in steps]
    assert all(step.metrics["actor/ppo_kl"] != 0 for step in steps), "later minibatches are not"


def test_what_it_did_can_be_asked_for_by_task_and_step(directory):
    found = rows(directory, "--task", "guess-3", "--step", "0", "--policy", "0..")

    assert found
    for row in found:
        action = row["step"]["action"]
        assert len(action["response_token_ids"]) == len(action["logprobs"]) == 1
        assert sum(count for _, count in action["policy_versions"]) == 1
        assert row["step"]["capture_level"] == "tokens"


def test_the_games_that_were_played_can_be_drawn_as_a_tree(directory):
    games = read_games(open_store(Settings(dir=directory)), RUN, oldest_version=0)

    trained = sum(step.num_rollouts for step in read_progress(progress_path(Settings(dir=directory), RUN))[:STEPS])
    assert len(games) >= trained
    assert {game.hidden for game in games} == set(range(1, HIGHEST + 1))
    assert all(1 <= len(game.guesses) <= MAX_GUESSES for game in games)


def test_later_weights_answered_later_calls(directory):
    assert open_store(Settings(dir=directory)).query(run=RUN, policy=(1, None)).items


@pytest.mark.long
def test_a_second_run_goes_on_where_the_first_ended(directory):
    done = command(directory, "demo", "--steps", str(STEPS + 1), seconds=600)

    steps = read_progress(progress_path(Settings(dir=directory), RUN))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [step.step for step in steps] == [1, 2, 3]
    assert steps[-1].policy_version > steps[-2].policy_version


def test_scripted_agents_are_evaluated_at_its_end(directory):
    listed = command(directory, "eval", "--list", "--format", "jsonl")
    rounds = [json.loads(line) for line in listed.stdout.splitlines()]
    if not rounds and "ok   namespace" not in command(directory, "sandbox", "doctor").stdout:
        pytest.skip("no kind of sandbox that isolates works here")

    found = {one["agent"]["target"].rpartition(":")[2]: one["figures"]["pass_at"][0] for one in rounds}
    assert {agent: one["estimate"]["value"] for agent, one in found.items()} == {
        "reference": 1.0,
        "independent": 1.0,
        "near_miss": 0.0,
    }


def test_the_store_is_whole_and_its_index_can_be_rebuilt(directory):
    store = open_store(Settings(dir=directory))
    before = store.query(run=RUN, limit=1000).items

    assert store.admin.check().findings == []
    assert before
    store.admin.reindex(drop=True)
    assert store.query(run=RUN, limit=1000).items == before


@pytest.mark.long
def test_stored_ids_are_those_that_the_engine_reports_for_the_same_request(directory, tmp_path):
    store = open_store(Settings(dir=directory))
    row = store.query(run=RUN, policy=(1, None), order="policy", limit=1).items[0]
    trajectory = store.get(row.trajectory_id)
    step, contents = trajectory.steps[-1], trajectory.contents
    ((version, _),) = step.action.policy_versions
    messages = [msgspec.json.decode(contents[name]) for name in step.state.messages]
    body = {"model": "policy", "messages": messages, "max_tokens": 1, "return_token_ids": True, "logprobs": True}
    with VllmServer(
        model=directory / "weights" / RUN / f"{version:06d}", log=tmp_path / "log", max_model_len=64
    ) as engine:
        whole = requests.post(f"{engine.url}/v1/chat/completions", json=body, timeout=scaled(60)).json()
        lines = requests.post(
            f"{engine.url}/v1/chat/completions", json=body | {"stream": True}, timeout=scaled(60)
        ).text

    chunks = [json.loads(line[6:]) for line in lines.splitlines() if line.startswith("data: {")]
    assert list(step.prompt_token_ids) == whole["prompt_token_ids"] == chunks[0]["prompt_token_ids"]
