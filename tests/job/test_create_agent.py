"""LangChain's ``create_agent`` with two tools and an output type, in one call each of ``up``, ``eval`` and ``train()``.

The real vLLM serves a tiny model that takes little: no system message in a later place, no answer of the length that
is asked. What an agent forces is left out in training, sent in evaluations, and named.
"""

import json
import os
import signal
import subprocess
import sys

import pytest
import requests

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import open_store
from trainer_adapter.data.samples import samples_of

from ..documents import ROOT
from ..waiting import read_line, run, scaled, wait_for_exit

pytest.importorskip("langchain", reason="extra 'dev' brings it")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

AGENTS = "created_agents"
INPUT = {"messages": [["user", "What is 6 times 7?"], ["system", "Be brief."], ["user", "Now."]]}
"""Behind what the agent puts first, a system message in third place; many templates refuse it there."""
SYSTEM_FIRST = (
    "{%- for message in messages %}{%- if message.role == 'system' and not loop.first %}"
    "{{- raise_exception('System message must be at the beginning.') }}{%- endif %}{%- endfor %}"
)
TRACED = f"""
import tracer
from {AGENTS} import GRAPHS

tracer.init()
for name, graph in GRAPHS.items():
    for number in range(4):
        try:
            with tracer.rollout(task=name, group_id=name) as rollout:
                rollout.reward(0.0)
                graph.invoke({INPUT})
        except Exception as error:
            print(name, type(error).__name__)
print(tracer.flush())
"""
TRAIN = f"""
import sys
from {AGENTS} import score
from trainer_adapter import RolloutConfig, train

tasks = [{{"id": str(number), "input": {INPUT}, "limits": {{"turns": 6}}}} for number in range(4)]
rollouts = RolloutConfig(groups_per_step=2, group_size=4)
train("{AGENTS}:" + sys.argv[1], tasks, score, model=sys.argv[2], steps=2, rollouts=rollouts)
"""
FORCED = {
    "tool": {"neutralised:tool_choice"},
    "format": {"neutralised:response_format", "neutralised:tools.strict"},
}
FORKED = {"prefix_break:template", "prefix_break:edited_history"}
"""The tiny model writes parallel calls side by side, its template on lines; LangChain leaves out what is no call."""
NAMES = ["tool_whole", "format_streamed"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from .calling_model import write_calling_model  # noqa: PLC0415  # torch takes seconds

    model = write_calling_model(tmp_path_factory.mktemp("calling") / "model")
    place = model / "chat_template.jinja"
    place.write_text(SYSTEM_FIRST + place.read_text())
    return model


@pytest.fixture
def settings(tmp_path):
    return Settings(dir=tmp_path / "home", engine_seconds=scaled(300))


def python(settings, *arguments, **variables):
    environment = os.environ | settings.environment() | variables
    done = run([sys.executable, *map(str, arguments)], 900, cwd=ROOT / "tests/job", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def read(settings, **query):
    store = open_store(settings)
    return [store.get(row.trajectory_id) for row in store.query(limit=1000, **query).items]


def check_steps(trajectories):
    """Check that each answer of the policy is whole and has its tokens; return its findings."""
    steps = [step for trajectory in trajectories for step in trajectory.steps if step.action is not None]
    assert {(step.error, step.status, step.capture_level, step.role) for step in steps} == {
        (None, "ok", "tokens", "policy")
    }
    assert all(len(step.action.logprobs) == len(step.action.response_token_ids) > 0 for step in steps)
    return {finding for step in steps for finding in step.findings}


def check_training(trajectories, name):
    """Check that each sampled token is trained, and that what was forced is named and nothing else."""
    findings = check_steps(trajectories)
    assert findings - FORKED == {"rearranged:system", *FORCED[name.partition("_")[0]]}
    for trajectory in trajectories:
        found = samples_of(trajectory)
        num_sampled = sum(len(step.action.response_token_ids) for step in trajectory.steps)
        assert (sum(sum(one.loss_mask) for one in found.samples), found.drops) == (num_sampled, [])
        assert (trajectory.outcome.status, trajectory.outcome.cause) in (("completed", None), ("truncated", "policy"))
        assert trajectory.reward is not None


def count_tokens(gateway_url, key):
    """Prompt and sampled tokens, by vLLM's own count."""
    engines = requests.get(
        f"{gateway_url}/health", headers={"Authorization": f"Bearer {key}"}, timeout=scaled(60)
    ).json()
    (engine,) = engines["engines"]
    lines = requests.get(f"{engine}/metrics", timeout=scaled(60)).text.splitlines()
    counted = [line for line in lines if line.startswith(("vllm:prompt_tokens_total", "vllm:generation_tokens_total"))]
    return {line.partition("{")[0].removeprefix("vllm:"): float(line.rpartition(" ")[2]) for line in counted}


def test_up_serves_it_and_the_engine_counts_what_is_recorded(settings, model):
    command = [sys.executable, "-m", "agent_layer.cli", "up", "--model", str(model), "--port", "0", "--no-view"]
    environment = os.environ | settings.environment()
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    try:
        exported = {}
        while "AGENT_LAYER_API_KEY" not in exported:
            line = read_line(up, scaled(300), settings.dir / "logs" / "vllm.log")
            name, _, value = line.removeprefix("export ").partition("=")
            exported[name] = value.strip()
        key, url = exported["AGENT_LAYER_API_KEY"], exported["AGENT_LAYER_GATEWAY_URL"]
        before = count_tokens(url, key)
        python(settings, "-c", TRACED, **exported)
        after = count_tokens(url, key)
    finally:
        up.send_signal(signal.SIGINT)
        wait_for_exit(up)
        up.stdout.close()

    names = [f"{form}_{way}" for form in FORCED for way in ("whole", "streamed")]
    found = {name: read(settings, task=name) for name in names}
    steps = [step for trajectories in found.values() for one in trajectories for step in one.steps if step.action]
    for name, trajectories in found.items():
        assert len(trajectories) == 4
        check_training(trajectories, name)
    counted = {name: after[name] - before[name] for name in after}
    assert counted == {
        "prompt_tokens_total": sum(len(step.prompt_token_ids) for step in steps),
        "generation_tokens_total": sum(len(step.action.response_token_ids) for step in steps),
    }


@pytest.mark.parametrize("name", NAMES)
def test_it_is_evaluated_guided_as_it_asks(settings, model, tmp_path, name):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "input": INPUT, "limits": {"turns": 6}}) + "\n")
    words = ["eval", f"{AGENTS}:{name}", tasks, "--model", model, "-n", 8, "--scorer", f"{AGENTS}:score"]
    done = python(settings, "-m", "agent_layer.cli", *words, "--round", "r", "--format", "jsonl")

    assert json.loads(done.stdout.splitlines()[0])["figures"]["num_rewards"] == 8
    assert check_steps(read(settings, run="eval.r")) - FORKED == {"rearranged:system"}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_trained_to_the_last_token(settings, model, name):
    python(settings, "-c", TRAIN, name, model)

    steps = read_progress(progress_path(settings, settings.run))
    assert [(step.policy_version, step.num_rollouts, step.num_null_rewards) for step in steps] == [(1, 8, 0), (2, 8, 0)]
    assert all(step.untrainable == {} for step in steps)
    assert steps[0].metrics["logprob_gap"] < 1e-3  # else the trainer reads other tokens than vLLM
    check_training(read(settings, run=settings.run, accepted=True), name)
