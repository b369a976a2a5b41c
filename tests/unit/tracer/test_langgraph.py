import asyncio
import json
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.messages import resolve
from agent_layer.schema.step import StepPart
from tracer.core.scope import current_scope


def calculate(prompt):
    """Ask for a sum once, then say that it is done."""
    if prompt.turn:
        return f"it is {prompt.text}"
    arguments = json.dumps({"a": 40, "b": 2})
    return {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}]}


@pytest.fixture(scope="module")
def engine():
    with serve_in_thread(ScriptedEngine(script=calculate)) as engine:
        yield engine


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def react(model, tools, name=None, state=MessagesState):
    bound = model.bind_tools(tools)

    def think(state):
        return {"messages": [bound.invoke(state["messages"])]}

    async def think_async(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(state)
    graph.add_node("think", think if name != "async" else think_async)
    graph.add_node("act", ToolNode(tools))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END, ["act", END])
    graph.add_edge("act", "think")
    return graph.compile(name=name)


QUESTION = {"messages": [HumanMessage("what is 40 + 2")]}


def read_framework(trajectory, step):
    return resolve(trajectory.contents, step.state.framework)


def check_react(trajectory):
    first, second = trajectory.steps
    assert [step.node for step in trajectory.steps] == ["think", "think"]
    assert first.action.message["tool_calls"][0]["function"]["name"] == "add"
    assert second.action.message["content"] == "it is 42"
    assert (first.parent_call, second.parent_call) == (None, first.call_id)
    assert read_framework(trajectory, first) == {"messages": [{"content": "what is 40 + 2", "role": "user"}]}
    roles = [message["role"] for message in read_framework(trajectory, second)["messages"]]
    assert roles == ["user", "assistant", "tool"]
    (observation,) = trajectory.observations
    assert (observation.name, observation.arguments, observation.output) == ("add", {"a": 40, "b": 2}, "42")
    assert (observation.call_id, observation.status) == (first.call_id, "ok")


def test_a_graph_is_recorded_without_a_change_to_it(model):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        react(model, [add]).invoke(QUESTION)

    check_react(captured.trajectory)


async def test_an_async_graph_is_recorded_alike(model):
    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await react(model, [add], "async").ainvoke(QUESTION)

    check_react(captured.trajectory)
    assert {step.agent for step in captured.trajectory.steps} == {"async"}


async def test_a_streamed_graph_is_recorded_alike(model):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        async for _ in react(model, [add], "async").astream(QUESTION, stream_mode="messages"):
            pass
        after = current_scope()

    check_react(captured.trajectory)
    assert (after.node, after.agent) == (None, None)


def test_what_the_client_records_and_the_graph_says_is_one_step(model):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        react(model, [add], "solver").invoke(QUESTION, {"configurable": {"thread_id": "th"}})

    first, _ = captured.trajectory.steps
    contents = captured.trajectory.contents
    assert (first.agent, first.node, first.conversation) == ("solver", "think", "th")
    assert json.loads(contents[first.state.messages[0]]) == {"content": "what is 40 + 2", "role": "user"}
    assert "add" in contents[first.state.tools].decode()
    parts = [record for record in captured.records if isinstance(record, StepPart) and record.call_id == first.call_id]
    assert [(part.source, part.phase) for part in parts] == [("handler", "start"), ("hook", "start"), ("hook", "end")]


def test_what_a_graph_and_its_client_say_of_a_message_is_one_content(model):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        react(model, [add]).invoke(QUESTION)

    _, second = captured.trajectory.steps
    state = json.loads(captured.trajectory.contents[second.state.framework])
    assert [one["$content"] for one in state["messages"]] == second.state.messages


def fake(*answers):
    return GenericFakeChatModel(messages=iter(answers))


def ask_in_a_graph(model):
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "ask")
    return graph.compile()


def test_a_model_without_a_traced_client_is_recorded_by_the_graph():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        ask_in_a_graph(fake(AIMessage("forty-two"))).invoke(QUESTION)

    (step,) = captured.trajectory.steps
    assert step.action.message == {"content": "forty-two", "role": "assistant"}
    assert (step.status, step.capture_level, step.node) == ("ok", "text", "ask")
    assert json.loads(captured.trajectory.contents[step.state.messages[0]])["content"] == "what is 40 + 2"


def test_an_answer_that_is_streamed_inside_a_node_is_one_message():
    def ask(state):
        chunks = list(model.stream(state["messages"]))
        return {"messages": [sum(chunks[1:], chunks[0])]}

    model = fake(AIMessage("forty two"), AIMessage("again"))
    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda state: "ask" if len(state["messages"]) < 3 else END)
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke(QUESTION)

    first, second = captured.trajectory.steps
    assert first.action.message == {"content": "forty two", "role": "assistant"}
    assert read_framework(captured.trajectory, second)["messages"][1] == first.action.message
    assert second.parent_call == first.call_id


def test_a_model_that_fails_is_an_error_step():
    with tracer.testing.capture() as captured, pytest.raises(RuntimeError), tracer.rollout(task="t"):
        ask_in_a_graph(fake()).invoke(QUESTION)

    (step,) = captured.trajectory.steps
    assert step.status == "error"
    assert captured.trajectory.outcome.status == "failed"


def test_a_tool_that_is_traced_twice_is_observed_once(model):
    @tool
    @tracer.tool(name="add")
    def traced_add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    traced_add.name = "add"
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        react(model, [traced_add]).invoke(QUESTION)

    (observation,) = captured.trajectory.observations
    assert (observation.name, observation.output) == ("add", 42)
    assert observation.call_id == captured.trajectory.steps[0].call_id


def test_a_tool_that_fails_is_observed_with_its_error(model):
    @tool("add")
    def broken(a: int, b: int) -> int:
        """Add two numbers."""
        raise ValueError(f"{a} + {b} is too hard")

    graph = react(model, [broken])
    with tracer.testing.capture() as captured, pytest.raises(ValueError, match="too hard"), tracer.rollout(task="t"):
        graph.invoke(QUESTION)

    (observation,) = captured.trajectory.observations
    assert observation.status == "error"
    assert "too hard" in observation.output


class Board(TypedDict):
    guesses: Annotated[list[int], operator.add]
    notes: str


def test_state_that_does_not_change_is_stored_once():
    model = fake(AIMessage("one"), AIMessage("two"))

    def guess(_):
        return {"guesses": [len(str(model.invoke("guess").content))]}

    graph = StateGraph(Board)
    graph.add_node("first", guess)
    graph.add_node("second", guess)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke({"guesses": [], "notes": "long " * 100})

    steps = captured.trajectory.steps
    assert [step.node for step in steps] == ["first", "second"]
    assert [read_framework(captured.trajectory, step)["guesses"] for step in steps] == [[], [3]]
    assert sum(b"long long" in body for body in captured.trajectory.contents.values()) == 1


async def test_agents_that_run_side_by_side_keep_their_causes_apart():
    def agent(name):
        model, graph = fake(*[AIMessage(f"{name} {turn}", id=f"{name}{turn}") for turn in range(3)]), None

        async def speak(state):
            answer = await model.ainvoke(state["messages"])
            await asyncio.sleep(0)
            return {"messages": [answer]}

        graph = StateGraph(MessagesState)
        graph.add_node("speak", speak)
        graph.add_edge(START, "speak")
        graph.add_conditional_edges("speak", lambda state: "speak" if len(state["messages"]) < 4 else END)
        return graph.compile(name=name)

    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await asyncio.gather(agent("left").ainvoke(QUESTION), agent("right").ainvoke(QUESTION))

    for name in ("left", "right"):
        mine = [step for step in captured.trajectory.steps if step.agent == name]
        assert [step.action.message["content"] for step in mine] == [f"{name} {turn}" for turn in range(3)]
        assert [step.parent_call for step in mine[1:]] == [step.call_id for step in mine[:-1]]


def test_a_node_of_a_graph_in_a_graph_speaks_for_the_inner_graph():
    inner = ask_in_a_graph(fake(AIMessage("inner")))
    inner.name = "inner"
    outer = StateGraph(MessagesState)
    outer.add_node("delegate", inner)
    outer.add_edge(START, "delegate")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        outer.compile(name="outer").invoke(QUESTION)

    (step,) = captured.trajectory.steps
    assert (step.agent, step.node) == ("inner", "ask")


def test_outside_a_rollout_a_graph_leaves_nothing():
    with tracer.testing.capture() as captured:
        ask_in_a_graph(fake(AIMessage("x"))).invoke(QUESTION)

    assert captured.records == []
