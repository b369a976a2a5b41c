"""Testing tools for users: records that are equal in every run, and readable as a stored trajectory."""

import doctest

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import tracer


@tracer.tool
def look(where):
    return {"seen": where}


@tracer.step
def decide(messages):
    return f"{len(messages)} messages"


def agent():
    tracer.state(room=1)
    decide([{"role": "user", "content": "hi"}])
    look("left")
    graph = StateGraph(MessagesState)
    model = GenericFakeChatModel(messages=iter([AIMessage("forty two")]))
    graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "ask")
    graph.compile(name="asker").invoke({"messages": [HumanMessage("what is 40 + 2")]})
    tracer.reward(1.0)
    tracer.reward(0.5, name="form", step=0)


def records_of_a_run():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        agent()
    return captured.records


def test_the_same_agent_leaves_the_same_records():
    assert records_of_a_run() == records_of_a_run()


def test_what_was_captured_is_read_like_a_stored_trajectory():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        agent()

    first, second = captured.steps
    assert captured.messages(first) == [{"role": "user", "content": "hi"}]
    assert (captured.environment(first), captured.framework(first), captured.tools(first)) == ({"room": 1}, None, None)
    assert captured.framework(second) == {"messages": [{"content": "what is 40 + 2", "role": "user"}]}
    assert [one.output for one in captured.observations] == [{"seen": "left"}]
    assert [(one.name, one.step) for one in captured.rewards] == [("reward", None), ("form", 0)]
    assert captured.trajectory.reward == 1.0
    assert captured.trajectory.accepted


def test_times_go_up_and_ids_sort_by_them():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        agent()

    ids = [step.call_id for step in captured.steps]
    assert ids == sorted(ids)
    assert all(step.ended_at > step.started_at for step in captured.steps)
    assert captured.observations[0].duration_seconds > 0


def test_the_example_of_the_documentation_holds():
    assert doctest.testmod(tracer.testing).failed == 0
