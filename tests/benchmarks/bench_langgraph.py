"""Cost of capture in a graph: the same graph bare, with a handler that does nothing, and captured.

The three take turns, on the CPU clock of the thread that runs the nodes, so that a machine that is busy with other
things shifts all of them alike. Records go to a log on disk, without a shipper.
"""

import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from statistics import median

from bench_table import Figure
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph

import tracer
from agent_layer.recorder import Recorder
from agent_layer.settings import Settings
from tracer.integrations.langgraph import HANDLER
from tracer.session import Session, use_session

__all__ = ["measure_langgraph"]

NUM_NODES = 20
NUM_ROUNDS = 150
WARM_UP = 10
QUESTION = {"messages": [HumanMessage("x" * 2048)]}
NODE_AIM, CALL_AIM = "≤ 60 µs", "≤ 120 µs"
"""A node, and a node with a call: DESIGN allows a call of 2 KB another 60."""


class DoesNothing(BaseCallbackHandler):
    """The floor: what LangChain itself spends on a handler."""

    run_inline = True

    def on_chat_model_start(self, *_: object, **__: object) -> None:
        """Without this method, LangChain falls back to ``on_llm_start``."""


def measure_langgraph(directory: Path) -> list[Figure]:
    """Measure what a node costs, and what a node that calls a model costs; the model is LangChain's own fake."""
    model = GenericFakeChatModel(messages=repeat(AIMessage("y" * 200)))

    def think(state: MessagesState) -> MessagesState:
        model.invoke(state["messages"])
        return {"messages": []}

    recorder = Recorder(Settings(dir=directory / "langgraph"))
    with use_session(Session(settings=Settings(dir=directory), sink=recorder)):
        figures = [
            _figure("LangGraph, a node", _ring(lambda _: {"messages": []}), NODE_AIM),
            _figure("LangGraph, a node with a call (fake model, 2 KB)", _ring(think), CALL_AIM),
        ]
    recorder.close()
    return figures


def _ring(node: Callable[[MessagesState], MessagesState]) -> CompiledStateGraph:
    graph = StateGraph(MessagesState)
    for number in range(NUM_NODES):
        graph.add_node(f"n{number}", node)
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    return graph.compile()


def _figure(what: str, graph: CompiledStateGraph, aim: str) -> Figure:
    rounds = [
        (_run(graph, None), _run(graph, DoesNothing()), _run_captured(graph)) for _ in range(WARM_UP + NUM_ROUNDS)
    ][WARM_UP:]
    ours = median(captured - bare for bare, _, captured in rounds)
    floor = median(empty - bare for bare, empty, _ in rounds)
    bare = median(bare for bare, _, _ in rounds)
    return Figure(
        f"{what}: added to {bare:.0f} µs of CPU (floor: a handler that does nothing)",
        f"{ours:.0f} µs",
        f"{floor:.0f} µs",
        f"{(bare + ours) / bare:.2f} of bare",
        aim,
    )


def _run(graph: CompiledStateGraph, handler: BaseCallbackHandler | None) -> float:
    """Return the CPU time of a node, in µs, with this handler in place of ours."""
    token = HANDLER.set(handler)
    try:
        return _clock(graph)
    finally:
        HANDLER.reset(token)


def _run_captured(graph: CompiledStateGraph) -> float:
    with tracer.rollout(task="bench"):
        return _clock(graph)


def _clock(graph: CompiledStateGraph) -> float:
    began = time.thread_time_ns()
    graph.invoke(QUESTION)
    return (time.thread_time_ns() - began) / NUM_NODES / 1_000
