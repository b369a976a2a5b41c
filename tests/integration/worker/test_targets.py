"""The forms of an agent: command, graph, environment."""

import asyncio
import json
import sys
from pathlib import Path

import openai
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

from agent_layer.schema.task import hash_input
from envs import StepResult

CALLING = """
import json, os, urllib.request

env = dict(os.environ)
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"Authorization": "Bearer " + env["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = env["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
print("noise")
wanted = ("AGENT_LAYER_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "TRACEPARENT")
print(json.dumps({k: v for k, v in env.items() if k.startswith(wanted) or "hush" in v}))
"""


async def test_a_command_gets_its_address_and_no_secret(harness, task, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_API_KEY", "operator-key")

    (trajectory,) = await harness.run([sys.executable, "-c", CALLING], task(grading="hush"))

    result = trajectory.outcome.result
    assert json.loads(result.pop("AGENT_LAYER_TASK")) == {
        "id": "t",
        "task_type": "default",
        "input": {"says": "hi"},
        "seed": None,
    }
    assert "operator-key" not in result.values()
    assert result["ANTHROPIC_BASE_URL"] + "/v1" == result["OPENAI_BASE_URL"]
    assert sorted(result) == [
        "AGENT_LAYER_ATTEMPT",
        "AGENT_LAYER_ROLLOUT",
        "AGENT_LAYER_RUN",
        "AGENT_LAYER_START_DIR",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "TRACEPARENT",
    ]
    assert len(trajectory.steps) == 1


async def test_side_calls_that_a_task_declares_are_stored_and_not_trained(harness, task):
    async def agent(_view, rollout):
        title = [{"role": "system", "content": "You are a title generator. You output ONLY a thread title."}]
        async with openai.AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.api_key) as client:
            for system in (title, []):
                await client.chat.completions.create(model="m", messages=[*system, {"role": "user", "content": "hi"}])

    (trajectory,) = await harness.run(agent, task(side_calls=["titles"]))

    assert [(step.role, step.findings) for step in trajectory.steps] == [("aux", ["side_call:titles"]), ("policy", [])]


TRACED = """
import openai
import tracer

shared = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)
tracer.init()
with tracer.rollout(task="by-itself"):
    with_agent = tracer.agent(name="asker")(shared.chat.completions.create)
    with_agent(model="m", messages=[{"role": "user", "content": "hi"}])
tracer.reward(0.75, name="own", step=0)
print(tracer.current().trajectory_id)
"""


async def test_a_command_that_traces_finds_its_rollout(harness, task):
    (trajectory,) = await harness.run([sys.executable, "-c", TRACED], task())

    assert trajectory.outcome.result == trajectory.trajectory_id
    (step,) = trajectory.steps
    assert (step.agent, step.capture_level, step.sources) == ("asker", "tokens", ["gateway"])
    assert step.trace_id
    assert [(reward.name, reward.score, reward.step) for reward in trajectory.rewards] == [("own", 0.75, 0)]


FORGES = """
import json, os, sys, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
headers = {"Authorization": "Bearer " + key}

def post(path, body):
    try:
        return urllib.request.urlopen(urllib.request.Request(base + path, json.dumps(body).encode(), headers)).status
    except urllib.error.HTTPError as error:
        return error.code

post("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
print(json.dumps([post("/../reward", {"score": 5, "step": 0}), post("/../reward", {"score": 5})]))
"""


async def test_a_command_rewards_itself_only_where_no_scorer_judges_it(harness, task, write_module):
    write_module("strict", "async def score(task, trajectory, result):\n    return 0.5\n")
    command = [sys.executable, "-c", FORGES]

    ran = await harness.run(command, task("a", scorer="strict:score"), task("b", scorer="agent"))
    judged, trusted = sorted(ran, key=lambda trajectory: trajectory.started.task_id)

    assert judged.outcome.result == [403, 403]
    assert [(reward.score, reward.step) for reward in judged.rewards] == [(0.5, None)]
    assert trusted.outcome.result == [200, 200]
    assert [(reward.score, reward.step) for reward in trusted.rewards] == [(5.0, 0), (5.0, None)]


LEAVES = """
import os, subprocess, sys, time
daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)  # holds the agent's output open
beside = subprocess.Popen(["sleep", "600"])
if sys.argv[1] == "stays":
    for _ in range(20):
        print("x" * 65536)
open(os.environ["PIDS"], "w").write(f"{os.getpid()} {daemon.pid} {beside.pid}")
print(1.0, flush=True)
while sys.argv[1] == "stays":
    print("x" * 65536)
"""


@pytest.fixture
def leaving(tmp_path, monkeypatch):
    """A command that starts a daemon and a server beside it, and where the ids of all three are written."""
    (tmp_path / "leaving.py").write_text(LEAVES)
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    return [sys.executable, str(tmp_path / "leaving.py")], tmp_path / "pids"


def have_ended(pids):
    return lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


async def test_a_command_that_leaves_servers_running_has_ended_and_they_end_with_it(harness, task, leaving, until):
    command, pids = leaving
    (trajectory,) = await harness.run([*command, "ends"], task())

    assert trajectory.reward == 1.0
    await until(have_ended(pids))


async def test_a_command_that_is_stopped_while_it_floods_its_output_ends_with_all_that_it_started(
    harness, task, leaving, until
):
    command, pids = leaving
    async with harness.worker([*command, "stays"]):
        groups = await harness.submit(task())
        await until(lambda: pids.exists() and pids.read_text())
        await asyncio.to_thread(harness.dispatcher.cancel, groups)
        await until(have_ended(pids))


async def test_what_a_command_says_to_its_whole_group_is_heard_by_what_it_started_alone(harness, task):
    script = (
        "trap '' HUP INT QUIT TERM USR1 USR2; for name in HUP INT QUIT TERM USR1 USR2; do kill -$name 0; done; echo 1.0"
    )

    (trajectory,) = await harness.run(["sh", "-c", script], task())

    assert trajectory.reward == 1.0


async def test_a_graph_is_run_as_it_is(harness, task):
    model = ChatOpenAI(model="policy", base_url="http://127.0.0.1:9/v1", api_key="none")

    async def ask(state: MessagesState) -> dict[str, object]:
        return {"messages": [await model.ainvoke([*state["messages"], HumanMessage("please")])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)

    (trajectory,) = await harness.run(graph.compile(), task(input="hello"))

    assert trajectory.outcome.result == "you said: please"
    assert trajectory.steps[0].node == "ask"


class Echo:
    """Done when the model has spoken twice."""

    def __init__(self):
        self.answers = []

    async def reset(self, task):
        return task.input["says"]

    async def step(self, action):
        self.answers.append(action)
        return StepResult(observation=f"heard {len(self.answers)}", reward=1.0, done=len(self.answers) == 2)

    def state(self):
        return {"turns": len(self.answers)}

    async def close(self):
        self.answers.clear()


async def test_the_model_plays_in_an_environment(harness, task):
    request = task()
    (trajectory,) = await harness.run(Echo, request, name="m:Echo", env="m:Echo", env_version="2")

    started = trajectory.started
    assert (started.input_hash, started.env, started.env_version) == (hash_input(request), "m:Echo", "2")

    assert trajectory.reward == 2.0
    assert [observation.output for observation in trajectory.observations] == ["heard 1", "heard 2"]
    assert [json.loads(trajectory.contents[step.state.environment]) for step in trajectory.steps] == [
        {"turns": 0},
        {"turns": 1},
    ]
    assert trajectory.observations[1].call_id == trajectory.steps[1].call_id
