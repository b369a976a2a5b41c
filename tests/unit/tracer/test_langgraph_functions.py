"""The functional API of LangGraph, questions that are answered one by one, and calls that fail inside nodes."""

import asyncio
import operator
from typing import Annotated, TypedDict

import openai
import pytest
from aiohttp import web
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread


@pytest.fixture(scope="module")
def engine():
    with serve_in_thread(ScriptedEngine(script=lambda prompt: f"so {prompt.text}")) as engine:
        yield engine


class Parts(TypedDict):
    seen: Annotated[list[str], operator.add]


def questioner(name):
    return lambda _: {"seen": [f"{name} {interrupt(f'may {name}?')}"]}


@pytest.mark.parametrize("order", ["abc", "bca", "cab", "cba"])
def test_parallel_questions_that_are_answered_one_by_one_are_one_observation_each(order):
    graph = StateGraph(Parts)
    for name in order:
        graph.add_node(name, questioner(name))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    compiled = graph.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "one"}}
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        compiled.invoke({"seen": []}, thread)
        for name in "abc":
            state = compiled.get_state(thread)
            (pending,) = [one for one in state.interrupts if one.value == f"may {name}?"]
            compiled.invoke(Command(resume={pending.id: f"yes {name}"}), thread)

    observed = [(one.name, one.arguments, one.output, one.status) for one in captured.trajectory.observations]
    assert observed == [("interrupt", f"may {name}?", f"yes {name}", "ok") for name in "abc"]


def test_a_question_inside_a_graph_inside_a_node_is_one_observation():
    inner = StateGraph(Parts)
    inner.add_node("ask", questioner("a"))
    inner.add_edge(START, "ask")
    compiled_inner = inner.compile()
    outer = StateGraph(Parts)
    outer.add_node("inside", compiled_inner)
    outer.add_edge(START, "inside")
    compiled = outer.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "one"}}
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        compiled.invoke({"seen": []}, thread)
        compiled.invoke(Command(resume="yes"), thread)

    assert [(one.arguments, one.output) for one in captured.trajectory.observations] == [("may a?", "yes")]


def places(trajectory):
    return [(step.node, step.agent, step.graph.path) for step in trajectory.steps]


def test_an_entrypoint_and_its_tasks_have_their_own_names_and_follow_each_other(engine):
    model = ChatOpenAI(model="scripted", base_url=f"{engine.url}/v1", api_key="own")

    @task
    def draft(text):
        return model.invoke(text).content

    @task(name="polish it")
    def polish(text):
        return draft(model.invoke(text).content).result()

    @entrypoint()
    def write(text):
        polished = polish(draft(text).result()).result()
        return model.invoke(polished).content

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        write.invoke("it")

    steps = captured.trajectory.steps
    assert places(captured.trajectory) == [
        ("draft", "draft", ["write", "draft"]),
        ("polish it", "polish it", ["write", "polish it"]),
        ("draft", "draft", ["write", "polish it", "draft"]),
        ("write", "write", ["write"]),
    ]
    assert [step.parent_call for step in steps] == [None, *(step.call_id for step in steps[:-1])]


async def test_asynchronous_tasks_side_by_side_have_their_own_names(engine):
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="own") as client:

        async def ask(text):
            await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}])

        @task
        async def one(text):
            await ask(text)

        @task
        async def other(text):
            await ask(text)

        @entrypoint()
        async def both(text):
            await asyncio.gather(one(text), other(text))
            await ask(text)

        with tracer.testing.capture() as captured, tracer.rollout(task="t"):
            await both.ainvoke("it")

    *beside, last = places(captured.trajectory)
    assert sorted(beside) == [("one", "one", ["both", "one"]), ("other", "other", ["both", "other"])]
    assert last == ("both", "both", ["both"])
    first, second, third = captured.trajectory.steps
    assert (first.parent_call, second.parent_call) == (None, None)
    assert third.parent_call in (first.call_id, second.call_id)


class FailingServer:
    """Answers every request with an error of the server."""

    def app(self):
        app = web.Application()
        app.add_routes([web.post("/{path:.*}", self.fail)])
        return app

    async def fail(self, _):
        return web.json_response({"error": {"message": "the engine is gone"}}, status=500)


@pytest.mark.parametrize("is_routed", [False, True], ids=["text", "gateway"])
@pytest.mark.parametrize("address", ["server", "nowhere"])
def test_a_call_that_fails_has_the_node_and_state_of_its_caller(address, is_routed, rollout_at):
    with serve_in_thread(FailingServer()) as server:
        url = server.url if address == "server" else "http://127.0.0.1:9"
        model = ChatOpenAI(model="m", base_url=f"{url}/v1", api_key="own", max_retries=0)

        def think(state):
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_edge(START, "think")
        with tracer.testing.capture() as captured:
            rollout = rollout_at(url, captured) if is_routed else None
            entered = tracer.enter_rollout(rollout) if rollout else tracer.rollout(task="t")
            with entered, pytest.raises((openai.InternalServerError, openai.APIConnectionError)):
                graph.compile(name="solver").invoke({"messages": [("user", "what")]})

    if is_routed:
        (part,) = [record for record in captured.records if getattr(record, "phase", None)]
        assert (part.phase, part.capture_level, part.agent, part.node) == ("start", None, "solver", "think")
        assert part.state.framework is not None
        assert captured.trajectories[0].steps == []  # unless a gateway recorded the call
    else:
        (step,) = captured.trajectory.steps
        assert (step.agent, step.node, step.status) == ("solver", "think", "error")
        assert step.error
        assert step.state.framework is not None
