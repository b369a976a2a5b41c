"""A graph that counts, as a program: ``counting_graph.py STATE JOURNAL [KILLED_AT]``.

Each of its nodes writes a line into the journal. In superstep KILLED_AT the process kills itself.
"""

import asyncio
import operator
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from envs.checkpoints.graphs import check_graph, run_graph
from envs.resume import resumable
from tracer import Rollout
from tracer.testing import Captured

NUM_ROUNDS = 5


class State(TypedDict):
    numbers: Annotated[list[int], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]


def build(note):
    """``note(text)`` is called by each node; two of them run side by side in each round."""

    async def count(state):
        note(f"count {len(state['numbers'])}")
        message = AIMessage(content=str(len(state["numbers"])), id=f"m{len(state['numbers'])}")
        return {"numbers": [len(state["numbers"])], "messages": [message]}

    async def watch(state):
        note(f"watch {len(state['numbers'])}")

    def go_on(state):
        return ["count", "watch"] if len(state["numbers"]) < NUM_ROUNDS else END

    graph = StateGraph(State)
    graph.add_node("count", count)
    graph.add_node("watch", watch)
    for node in ("count", "watch"):
        graph.add_edge(START, node)
    graph.add_conditional_edges("count", go_on)
    return check_graph(resumable(graph.compile()), "counting")


class FileKeeper:
    """Keeps the last state in a file."""

    def __init__(self, path):
        self.path = path

    async def keep(self, state):
        unfinished = self.path.with_suffix(".new")
        unfinished.write_bytes(state)
        unfinished.replace(self.path)
        return False

    async def stay_paused(self):
        raise AssertionError


async def main(path, journal, killed_at):
    def note(text):
        with journal.open("a") as file:
            file.write(f"{text}\n")
        if text == f"count {killed_at}":
            os.kill(os.getpid(), signal.SIGKILL)

    own = {"trajectory_id": "t-0", "rollout_id": "t", "attempt": 0, "run": "r"}
    kept = path.read_bytes() if path.exists() else None
    rollout = Rollout(**own, sink=Captured(), keeper=FileKeeper(path), kept=kept)
    end = await run_graph(build(note), {"numbers": [], "messages": [("user", "go")]}, rollout)
    sys.stdout.write(f"{end['numbers']} {[message.content for message in end['messages']]}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), "".join(sys.argv[3:])))
