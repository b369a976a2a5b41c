"""A worker is killed or frozen in the middle of a resumable agent: the same attempt resumes from its last step."""

import json
import signal

import pytest

from agent_layer.schema.task import Task
from agent_layer.state.checkpoints import checkpoint_prefix
from agent_layer.store.maintenance.gc import Grace
from agent_layer.store.store import open_store
from trainer_adapter.data.samples import samples_of

from ...waiting import scaled, wait_until
from ...working import ASK

NUM_ROUNDS = 6
"""Before the fifth, the agent waits until its worker was killed or frozen."""
TASK = Task(id="t", run="default", input={"messages": [], "turn": 0})
GRAPH = (
    ASK
    + """
import asyncio, operator, pathlib
from typing import Annotated, TypedDict
from langgraph.graph import END, START, StateGraph
from envs import resumable
from tracer import current

class State(TypedDict):
    messages: Annotated[list, operator.add]
    turn: int

async def ask_once(state):
    text = f"turn {state.get('turn', 0)}"
    answer = await ask(current(), text, state.get("messages", []))
    said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
    return {"messages": [{"role": "user", "content": text}, said], "turn": state.get("turn", 0) + 1}

async def think(state):
    while state["turn"] > 3 and not (pathlib.Path(__file__).parent / "goes on").exists():
        await asyncio.sleep(0.02)
    return {}

graph = StateGraph(State)
graph.add_node("ask", ask_once)
graph.add_node("think", think)
graph.add_edge(START, "ask")
graph.add_edge("ask", "think")
graph.add_conditional_edges("think", lambda state: "ask" if state["turn"] < 6 else END)
agent = resumable(graph.compile())
"""
)
SCORER = """
async def judge(task, trajectory, result):
    return 1.0
"""


WORK = ("agent:agent", "--scorer", "scorer:judge", "--slots", "2")


@pytest.fixture
def pace():
    return {"lease_seconds": scaled(2.0), "heartbeat_seconds": 0.2}


@pytest.fixture(autouse=True)
def _modules(write_module):
    write_module("agent", GRAPH)
    write_module("scorer", SCORER)


@pytest.fixture
def store(stack):
    return open_store(stack.settings)


@pytest.fixture
def begin(start_worker, dispatcher, store, worker_output):
    """``begin(*how)``: start a worker and have it do three turns; returns the worker and the group."""

    def start(*how):
        first = start_worker(*WORK, *how)
        groups = dispatcher.submit([TASK])
        wait_until(lambda: any(row.num_steps >= 3 for row in store.query(task="t").items), log=worker_output)
        return first, groups

    return start


def ended(dispatcher, store, groups):
    """The one attempt that counts, and how often the task was accepted."""
    (group,) = dispatcher.wait(groups, timeout=scaled(90))
    assert (group.is_closed, group.num_accepted) == (True, 1)
    wait_until(lambda: len(store.query(task="t", accepted=True).items) == 1)
    (row,) = store.query(task="t").items
    return store.get(row.trajectory_id)


def check_kept(trajectory):
    """Every turn appears once, also those before the fault; abandoned turns are not trained."""
    good = [step for step in trajectory.steps if step.status == "ok"]
    questions = [json.loads(trajectory.contents[step.state.messages[-1]])["content"] for step in good]
    assert questions == [f"turn {number}" for number in range(NUM_ROUNDS)]
    left = {step.call_id for step in trajectory.steps if step.status != "ok"}
    assert left <= {call_id for one in trajectory.resumes for call_id in one.abandoned}
    found = samples_of(trajectory)
    assert sum(len(sample.steps) for sample in found.samples) == NUM_ROUNDS
    assert {drop.call_id for drop in found.drops} == left
    assert len(found.samples) == 1


@pytest.mark.parametrize("how", [(), pytest.param(("--isolate",), marks=pytest.mark.long)], ids=["shared", "isolated"])
def test_killed_between_two_steps_of_a_graph(dispatcher, store, start_worker, begin, tmp_path, how):
    first, groups = begin(*how)

    first.send_signal(signal.SIGKILL)
    (tmp_path / "goes on").touch()
    start_worker(*WORK, *how)
    trajectory = ended(dispatcher, store, groups)

    assert trajectory.trajectory_id == f"{groups[0]}.0-0"
    assert len(trajectory.resumes) == 1
    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 1.0)
    check_kept(trajectory)
    wait_until(lambda: [one.status for one in dispatcher.rollouts(groups)] == ["completed"])
    store.admin.collect_garbage(grace=Grace(seconds=0.0))  # of a worker that was killed before it named its last one
    wait_until(lambda: not list(store.objects.list(checkpoint_prefix(store.keys))))


@pytest.mark.long
def test_a_frozen_worker_that_comes_back_changes_nothing(dispatcher, store, start_worker, begin, tmp_path):
    first, groups = begin()

    first.send_signal(signal.SIGSTOP)
    start_worker(*WORK)
    wait_until(lambda: [one.checkpoint for one in dispatcher.rollouts(groups)] != [None])
    wait_until(lambda: resumed(store))
    first.send_signal(signal.SIGCONT)
    (tmp_path / "goes on").touch()
    trajectory = ended(dispatcher, store, groups)

    assert trajectory.trajectory_id == f"{groups[0]}.0-0"
    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 1.0)
    check_kept(trajectory)
    assert first.poll() is None


def resumed(store):
    return any(store.get(row.trajectory_id).resumes for row in store.query(task="t").items)
