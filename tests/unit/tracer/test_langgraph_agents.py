"""Agents that LangGraph builds, and graphs of several agents, as they are used: whose step, which tool, which cause."""

import warnings
from typing import Annotated

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command

import tracer

QUESTION = {"messages": [HumanMessage("what is 40 + 2")]}


class Fake(GenericFakeChatModel):
    """The public test model, which takes tools and ignores them."""

    def bind_tools(self, tools, **kwargs):  # noqa: ARG002 - its answers are written down already
        return self


def fake(*answers):
    return Fake(messages=iter([AIMessage(one) if isinstance(one, str) else one for one in answers]))


def asks(*calls):
    return AIMessage("", tool_calls=[ToolCall(name=name, args=args, id=f"{name}-{args}") for name, args in calls])


def react(model, tools, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the builder has moved to another package; people use both
        return create_react_agent(model, tools, **options)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_prebuilt_agent_with_parallel_tools_is_recorded(version):
    model = fake(asks(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "3 and 7")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        react(model, [add], version=version, name="solver").invoke(QUESTION)

    first, second = captured.steps
    assert [(step.agent, step.node) for step in captured.steps] == [("solver", "agent")] * 2
    assert (first.parent_call, second.parent_call) == (None, first.call_id)
    assert sorted((one.name, one.output) for one in captured.observations) == [("add", "3"), ("add", "7")]
    assert {one.call_id for one in captured.observations} == {first.call_id}
    assert {one.agent for one in captured.observations} == {"solver"}
    assert [message["role"] for message in captured.messages(second)] == ["user", "assistant", "tool", "tool"]


def test_an_agent_that_is_a_tool_of_another_follows_from_the_call_that_asked_for_it():
    expert = react(fake(asks(("add", {"a": 40, "b": 2})), "42"), [add], name="expert")

    @tool
    def ask_expert(question: str) -> str:
        """Ask the expert."""
        return expert.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content

    lead = react(fake(asks(("ask_expert", {"question": "40 + 2"})), "it is 42"), [ask_expert], name="lead")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        lead.invoke(QUESTION)

    request, thought, answered, answer = captured.steps
    assert [step.agent_path for step in captured.steps] == [None, ["lead", "expert"], ["lead", "expert"], None]
    assert [step.agent for step in captured.steps] == ["lead", "expert", "expert", "lead"]
    assert (thought.parent_call, answered.parent_call) == (request.call_id, thought.call_id)
    assert answer.parent_call == request.call_id
    observed = [(one.name, one.agent, one.call_id) for one in captured.observations]
    assert observed == [("add", "expert", thought.call_id), ("ask_expert", "lead", request.call_id)]


def test_agents_that_hand_over_to_each_other_keep_their_names():
    @tool
    def to_writer(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Hand over."""
        done = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(goto="writer", graph=Command.PARENT, update={"messages": [done]})

    graph = StateGraph(MessagesState)
    graph.add_node("planner", react(fake(asks(("to_writer", {}))), [to_writer], name="planner"))
    graph.add_node("writer", react(fake("written"), [add], name="writer"))
    graph.add_edge(START, "planner")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke(QUESTION)

    planned, written = captured.steps
    assert [(step.agent, step.graph.path) for step in captured.steps] == [
        ("planner", ["planner", "agent"]),
        ("writer", ["writer", "agent"]),
    ]
    assert written.parent_call == planned.call_id
    (observation,) = captured.observations
    assert (observation.name, observation.call_id, observation.status) == ("to_writer", planned.call_id, "ok")


def test_tasks_of_the_functional_interface_have_their_own_names():
    model = fake("one", "two")

    @task
    def ask(text):
        return model.invoke(text).content

    @entrypoint()
    def flow(text):
        return [ask(text).result(), ask(text).result()]

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert flow.invoke("x") == ["one", "two"]

    assert [step.node for step in captured.steps] == ["ask", "ask"]
    assert {(step.agent, *step.agent_path) for step in captured.steps} == {("ask", "flow", "ask")}
    assert [step.action.message["content"] for step in captured.steps] == ["one", "two"]


async def test_a_model_that_completes_text_is_a_step():
    from langchain_core.language_models.fake import FakeListLLM  # noqa: PLC0415 - loads slowly, for this test alone

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert await FakeListLLM(responses=["4"]).ainvoke("2 + 2 =") == "4"

    (step,) = captured.steps
    assert captured.messages(step) == [{"content": "2 + 2 =", "role": "user"}]
    assert step.action.message == {"content": "4", "role": "assistant"}


def test_messages_of_several_inputs_are_steps_of_their_own():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        fake("one", "two").batch(["x", "y"], {"max_concurrency": 1})

    assert [step.action.message["content"] for step in captured.steps] == ["one", "two"]
    assert [captured.messages(step)[0]["content"] for step in captured.steps] == ["x", "y"]
