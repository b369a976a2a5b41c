"""Values without a JSON form in messages, states, tools and answers: converted by themselves, and never the agent's
problem."""

import dataclasses
import datetime
import json
import math
from decimal import Decimal
from typing import Annotated, TypedDict

import numpy as np
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph, add_messages
from pydantic import BaseModel, ConfigDict

import tracer
from agent_layer.schema.messages import resolve


class Basket(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    weights: object


@dataclasses.dataclass
class Place:
    x: object


ODD = {
    "half": "caf\u00e9 \ud83d",
    "number": np.float32(0.5),
    "array": np.array([[1, 2]]),
    "price": Decimal("1.50"),
    "large": 2**80,
    "seen": {"a"},
    "raw": b"\xff",
    "when": datetime.date(2020, 1, 2),
    "model": Basket(weights=np.array([1])),
    "place": Place({"y": math.nan}),
}
FORM = {
    "half": "caf\u00e9 \\ud83d",
    "number": 0.5,
    "array": [[1, 2]],
    "price": "1.50",
    "large": str(2**80),
    "seen": ["a"],
    "raw": "/w==",
    "when": "2020-01-02",
    "model": {"weights": [1]},
    "place": {"x": {"y": "NaN"}},
}


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]
    odd: object


@tool
def look(where: object) -> object:
    """Look."""
    return {"found": where, **ODD}


def test_a_graphs_messages_state_and_tools_keep_their_structure():
    call = {"name": "look", "args": {"where": ODD}, "id": "c1"}
    answers = [AIMessage("on \ud83d it", tool_calls=[call]), AIMessage("done")]
    model = GenericFakeChatModel(messages=iter(answers))

    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    def act(_):
        answer = look.invoke({"where": ODD})
        return {"messages": [ToolMessage(json.dumps(answer["found"]["half"]), tool_call_id="c1")]}

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END, ["act", END])
    graph.add_edge("act", "think")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        graph.compile().invoke({"messages": [HumanMessage("what \udc00"), HumanMessage([ODD])], "odd": ODD})

    first, second = captured.trajectory.steps
    read = captured.trajectory.contents
    assert [resolve(read, name)["content"] for name in first.state.messages] == ["what \\udc00", [FORM]]
    assert resolve(read, first.state.framework)["odd"] == FORM
    (requested,) = first.action.message["tool_calls"]
    assert json.loads(requested["function"]["arguments"]) == {"where": FORM}
    assert resolve(read, second.state.messages[2])["content"] == "on \\ud83d it"
    (seen,) = captured.trajectory.observations
    assert seen.arguments == {"where": FORM}
    assert seen.output == {"found": FORM, **FORM}


def test_a_decorated_tool_a_step_and_a_state_keep_their_structure():
    @tracer.tool
    def look_at(where):
        return [where]

    @tracer.step
    def decide(messages, hint):
        return {"role": messages[0]["role"], "content": "so", "why": hint}

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        tracer.state(world=ODD)
        decide(messages=[{"role": "user", "content": ODD}], hint=ODD)
        look_at(ODD)

    (step,), read = captured.trajectory.steps, captured.trajectory.contents
    assert resolve(read, step.state.environment) == {"world": FORM}
    assert resolve(read, step.state.framework) == {"hint": FORM}
    assert resolve(read, step.state.messages[0]) == {"role": "user", "content": FORM}
    assert step.action.message == {"role": "user", "content": "so", "why": FORM}
    (seen,) = captured.trajectory.observations
    assert (seen.arguments, seen.output) == ({"where": FORM}, [FORM])
