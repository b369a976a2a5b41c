"""The agent that the demo trains: an ordinary LangGraph graph of two nodes.

``guess`` asks the model for a number; ``oracle`` is the tool that answers higher or lower. The client is built once, at
import, without an address: inside a rollout the tracer sends its calls to that rollout's own address.
"""

# LangGraph's node protocols fix parameter names
# pyright: basic, reportCallIssue=false, reportArgumentType=false

from typing import Annotated, TypedDict

from httpx_aiohttp import HttpxAiohttpClient
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import tracer
from agent_layer.schema import TaskView
from envs.tasksets.guess_number.game import MAX_GUESSES, Game, compare

model = ChatOpenAI(
    model="policy",
    base_url="http://127.0.0.1:9/v1",
    api_key="given-by-the-rollout",
    temperature=1.0,
    max_tokens=1,
    http_async_client=HttpxAiohttpClient(timeout=120),
)


class State(TypedDict):
    """State of the graph."""

    messages: Annotated[list[AnyMessage], add_messages]
    hidden: int
    guesses: list[int | None]
    answer: str


class Question(TypedDict):
    """The part of the state that the oracle needs."""

    hidden: int
    guesses: list[int | None]


async def guess(state: State) -> dict[str, object]:
    """Ask the model for its next number."""
    message = await model.ainvoke(state["messages"])
    word = str(message.content).strip()
    return {"messages": [message], "guesses": [*state["guesses"], int(word) if word.isdecimal() else None]}


@tracer.tool
async def oracle(question: Question) -> dict[str, object]:
    """Answer whether the hidden number is higher or lower."""
    answer = compare(question["guesses"][-1], question["hidden"])
    return {"answer": answer, "messages": [HumanMessage(answer)]}


def is_over(state: State) -> str:
    """Leave the graph when the number is found, the guess is foul, or the guesses are used up."""
    return END if state["answer"] in ("found", "foul") or len(state["guesses"]) >= MAX_GUESSES else "guess"


builder = StateGraph(State)
builder.add_node("guess", guess)
builder.add_node("oracle", oracle, input_schema=Question)
builder.add_edge(START, "guess")
builder.add_edge("guess", "oracle")
builder.add_conditional_edges("oracle", is_over, ["guess", END])
graph = builder.compile()


def new_game(hidden: int) -> dict[str, object]:
    """State from which a game begins."""
    return {"messages": [HumanMessage("guess")], "hidden": hidden, "guesses": [], "answer": ""}


async def play(task: TaskView, _rollout: tracer.Rollout) -> dict[str, float]:
    """Play one game and report its scores; the task says that this report counts (``scorer: agent``)."""
    hidden = int(task.input["hidden"])  # pyright: ignore[reportIndexIssue]  # this example's own tasks
    end = await graph.ainvoke(new_game(hidden))
    return Game(hidden, tuple(end["guesses"])).scores()
