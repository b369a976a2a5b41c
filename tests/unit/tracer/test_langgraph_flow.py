"""Graphs that branch, pause, nest, retry and hand over: whose step, from which state, caused by which call."""

import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

import tracer
from agent_layer.schema.messages import resolve

QUESTION = {"messages": [HumanMessage("go")]}


def fake(*answers):
    return GenericFakeChatModel(messages=iter([AIMessage(one) if isinstance(one, str) else one for one in answers]))


def asks(name, arguments, call_id="c1"):
    return AIMessage("", tool_calls=[ToolCall(name=name, args=arguments, id=call_id)])


class Board(TypedDict):
    seen: Annotated[list[str], operator.add]
    part: str


def speak(model):
    """A node whose model sees only its own prompt, so that causes come from the graph alone."""

    def node(state):
        return {"seen": [model.invoke(f"{state['part']}").content]}

    return node


def steps_by_answer(captured):
    return {step.action.message["content"]: step for step in captured.trajectory.steps if step.action.message}


def parents(captured):
    """Answer → the answer that led to it."""
    answers = {step.call_id: answer for answer, step in steps_by_answer(captured).items()}
    return {answer: answers.get(step.parent_call) for answer, step in steps_by_answer(captured).items()}


def fan_out():
    graph = StateGraph(Board)
    graph.add_node("plan", speak(fake("plan")))
    graph.add_node("left", speak(fake("left")))
    graph.add_node("work", speak(fake("work 0", "work 1")))
    graph.add_node("sum", speak(fake("sum")))
    graph.add_edge(START, "plan")
    sends = [Send("work", {"part": str(part)}) for part in range(2)]
    graph.add_conditional_edges("plan", lambda _: [*sends, "left"], ["work", "left"])
    graph.add_edge(["work", "left"], "sum")
    return graph.compile()


async def test_each_branch_of_a_fan_out_is_a_line_of_thought_of_its_own():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        fan_out().invoke({"seen": [], "part": "all"}, {"configurable": {"thread_id": "th"}})

    answer, steps = parents(captured), steps_by_answer(captured)
    assert (answer["plan"], answer["work 0"], answer["work 1"], answer["left"]) == (None, "plan", "plan", "plan")
    assert answer["sum"] in ("work 0", "work 1", "left")
    assert [steps[name].conversation for name in ("plan", "left", "sum")] == ["th"] * 3
    assert steps["work 0"].conversation != steps["work 1"].conversation
    assert {steps[name].conversation for name in ("work 0", "work 1")} == {"th/work@2.0", "th/work@2.1"}
    assert {steps[name].graph.branch for name in ("work 0", "work 1")} == {0, 1}
    assert {resolve(captured.trajectory.contents, steps[f"work {n}"].state.framework)["part"] for n in "01"} == {
        "0",
        "1",
    }


def test_a_step_knows_its_node_and_the_nodes_that_led_there():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        fan_out().invoke({"seen": [], "part": "all"})

    steps = steps_by_answer(captured)
    assert steps["plan"].graph.came_from == ["__start__"]
    assert steps["left"].graph.came_from == ["plan"]
    assert sorted(steps["sum"].graph.came_from) == ["left", "work"]
    assert [steps[name].graph.superstep for name in ("plan", "left", "sum")] == [1, 2, 3]


def test_a_graph_in_a_graph_tells_the_path_of_its_node():
    inner = StateGraph(Board)
    inner.add_node("ask", speak(fake("inner")))
    inner.add_node("check", speak(fake("checked")))
    inner.add_edge(START, "ask")
    inner.add_edge("ask", "check")
    outer = StateGraph(Board)
    outer.add_node("begin", speak(fake("begun")))
    outer.add_node("delegate", inner.compile(name="expert"))
    outer.add_node("finish", speak(fake("finished")))
    outer.add_edge(START, "begin")
    outer.add_edge("begin", "delegate")
    outer.add_edge("delegate", "finish")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        outer.compile(name="lead").invoke({"seen": [], "part": ""})

    steps = steps_by_answer(captured)
    assert steps["checked"].graph.path == ["delegate", "check"]
    assert (steps["inner"].agent, steps["inner"].agent_path) == ("expert", ["lead", "expert"])
    assert (steps["finished"].agent, steps["finished"].agent_path) == ("lead", None)
    assert parents(captured) == {"begun": None, "inner": "begun", "checked": "inner", "finished": "checked"}


def test_a_node_that_is_tried_again_begins_where_it_began():
    model, tries = fake("before", "first try", "second try", "after"), []

    def unsure(_):
        answer = model.invoke("x").content
        tries.append(answer)
        if len(tries) == 1:
            raise ConnectionError
        return {"seen": [answer]}

    graph = StateGraph(Board)
    graph.add_node("one", speak(model))
    graph.add_node("two", unsure, retry_policy=RetryPolicy(initial_interval=0.001, max_attempts=3))
    graph.add_node("three", speak(model))
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", "three")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke({"seen": [], "part": ""})

    assert parents(captured) == {
        "before": None,
        "first try": "before",
        "second try": "before",
        "after": "second try",
    }


def paused_graph():
    def ask(state):
        return {"seen": [interrupt({"may I": state["part"]})]}

    graph = StateGraph(Board)
    graph.add_node("think", speak(fake("thought")))
    graph.add_node("ask", ask)
    graph.add_node("act", speak(fake("acted")))
    graph.add_edge(START, "think")
    graph.add_edge("think", "ask")
    graph.add_edge("ask", "act")
    return graph.compile(checkpointer=InMemorySaver())


def test_a_graph_that_was_interrupted_goes_on_in_its_rollout():
    graph, thread = paused_graph(), {"configurable": {"thread_id": "th"}}
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.invoke({"seen": [], "part": "go"}, thread)
        assert graph.invoke(Command(resume="yes"), thread)["seen"] == ["thought", "yes", "acted"]

    assert parents(captured) == {"thought": None, "acted": "thought"}
    acted = steps_by_answer(captured)["acted"]
    assert resolve(captured.trajectory.contents, acted.state.framework)["seen"] == ["thought", "yes"]
    assert (acted.conversation, acted.graph.came_from) == ("th", ["ask"])
    (request,) = captured.trajectory.observations
    assert (request.name, request.arguments, request.output, request.status) == (
        "interrupt",
        {"may I": "go"},
        "yes",
        "ok",
    )
    assert request.call_id == steps_by_answer(captured)["thought"].call_id


def test_a_question_that_nobody_answers_is_kept():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        paused_graph().invoke({"seen": [], "part": "go"}, {"configurable": {"thread_id": "th"}})

    (request,) = captured.trajectory.observations
    assert (request.arguments, request.output, request.status) == ({"may I": "go"}, None, None)


def test_a_tool_that_asks_a_person_is_observed_once_when_it_has_run():
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}" if interrupt("sure?") else "not paid"

    model, thread = fake(asks("pay", {"amount": 3}), "done"), {"configurable": {"thread_id": "th"}}
    graph = StateGraph(MessagesState)
    graph.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("act", ToolNode([pay]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END, ["act", END])
    graph.add_edge("act", "think")
    graph = graph.compile(checkpointer=InMemorySaver())
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.invoke(QUESTION, thread)
        graph.invoke(Command(resume=True), thread)

    first, second = captured.trajectory.steps
    assert second.parent_call == first.call_id
    observed = [(one.name, one.output, one.status, one.call_id) for one in captured.trajectory.observations]
    assert observed == [("interrupt", True, "ok", first.call_id), ("pay", "paid 3", "ok", first.call_id)]


def ask_in_a_node(model):
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "ask")
    return graph.compile()


async def all_events(graph):
    return [event async for event in graph.astream_events(QUESTION, version="v2")]


async def all_messages(graph):
    return [part async for part in graph.astream(QUESTION, stream_mode=["messages", "updates", "values"])]


RUNS = {
    "astream_events": all_events,
    "astream": all_messages,
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
async def test_a_call_is_one_step_however_it_is_streamed(run):
    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await run(ask_in_a_node(fake("forty two")))

    (step,) = captured.trajectory.steps
    assert (step.status, step.action.message["content"], step.node) == ("ok", "forty two", "ask")


def test_a_stream_of_a_graph_that_is_left_is_one_step():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for _ in ask_in_a_node(fake("forty two")).stream(QUESTION, stream_mode="messages"):
            break

    (step,) = captured.trajectory.steps
    assert step.node == "ask"


def test_each_input_of_a_batch_is_a_step():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        ask_in_a_node(fake("one", "two", "three")).batch([QUESTION] * 3)

    assert sorted(steps_by_answer(captured)) == ["one", "three", "two"]
    assert {step.node for step in captured.trajectory.steps} == {"ask"}


def test_a_model_whose_stream_is_left_gives_an_aborted_step_with_what_had_come():
    def ask(state):
        stream = model.stream(state["messages"])
        first = next(stream)
        stream.close()
        return {"messages": [AIMessage(first.content)]}

    model, graph = fake("forty two"), StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke(QUESTION)

    (step,) = captured.trajectory.steps
    assert (step.status, step.action.message["content"]) == ("aborted", "forty")


def test_a_stream_that_nobody_closes_ends_with_its_rollout():
    with tracer.testing.capture() as captured:
        with tracer.rollout(task="t"):
            stream = fake("forty two").stream("x")
            next(stream)
        rest = list(stream)

    (step,) = captured.trajectory.steps
    assert (step.status, len(rest) > 0) == ("aborted", True)
    assert [one.phase for one in captured.records if type(one).__name__ == "StepPart"] == ["start", "end"]


def test_a_list_that_grows_is_stored_item_by_item():
    def note(number):
        return {"seen": [f"{number} " + "long " * 50]}

    model, graph = fake("1", "2", "3"), StateGraph(Board)
    for number in range(3):
        graph.add_node(f"n{number}", lambda _, number=number: note(int(model.invoke("x").content) + number))
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke({"seen": [], "part": ""})

    assert [len(captured.framework(step)["seen"]) for step in captured.steps] == [0, 1, 2]
    stored = [body for body in captured.trajectory.contents.values() if b"long long" in body]
    assert len(stored) == 2
