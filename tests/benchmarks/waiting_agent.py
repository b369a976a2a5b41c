"""Agent of bench_async_training: two guesses at a hidden number, and between them a tool that keeps it waiting.

The game is the demo's with three numbers: a guess, the tool's answer "higher" or "lower", a second guess. Each rollout
calls the tool exactly once, and waits as long as its task's seed and its own id say. Runs of the same name and seed
have rollouts with the same ids, so each of them meets the same waits.
"""

import asyncio
from random import Random

from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph

import tracer
from envs.tasksets import Game, compare
from envs.tasksets.guess_number import agent as demo

__all__ = ["HIGHEST", "WAITS", "draw_wait_seconds", "play"]

HIGHEST = 3
WAITS = "tools wait 0.1 to 0.3 s (median 0.17), one in ten 2 to 6 s (median 3.5), log-uniform"
_SLOW_SHARE, _QUICK, _SLOW = 0.1, (0.1, 0.3), (2.0, 6.0)


class State(demo.State):
    """State of the graph."""

    wait_seconds: float


class Question(demo.Question):
    """The part of the state that the tool needs."""

    wait_seconds: float


def draw_wait_seconds(seed: int, rollout_id: str) -> float:
    """Return how long the tool takes in a rollout."""
    chance = Random(f"{seed} {rollout_id}")
    low, high = _SLOW if chance.random() < _SLOW_SHARE else _QUICK
    return low * (high / low) ** chance.random()


@tracer.tool
async def oracle(question: Question) -> dict[str, object]:
    """Wait, then answer whether the hidden number is higher or lower."""
    await asyncio.sleep(question["wait_seconds"])
    answer = compare(question["guesses"][-1], question["hidden"])
    return {"answer": answer, "messages": [HumanMessage(answer)]}


builder = StateGraph(State)
builder.add_node("first", demo.guess)
builder.add_node("oracle", oracle, input_schema=Question)
builder.add_node("second", demo.guess)
builder.add_edge(START, "first")
builder.add_edge("first", "oracle")
builder.add_conditional_edges(
    "oracle", lambda state: END if state["answer"] in ("found", "foul") else "second", ["second", END]
)
builder.add_edge("second", END)
graph = builder.compile()


async def play(task, rollout):
    """Play one game and report its scores."""
    hidden = int(task.input["hidden"])
    wait_seconds = draw_wait_seconds(task.seed, rollout.rollout_id)
    end = await graph.ainvoke(demo.new_game(hidden) | {"wait_seconds": wait_seconds})
    return Game(hidden, tuple(end["guesses"])).scores()
