"""This file holds the run of a resumable LangGraph graph: begun with its input, or gone on with after a superstep."""

from collections.abc import Awaitable, Mapping
from typing import Protocol, Self, runtime_checkable

from agent_layer.errors import BadInputError
from tracer import Rollout

__all__ = ["check_graph", "run_graph"]


@runtime_checkable
class ResumableGraph(Protocol):
    """A graph that LangGraph has compiled."""

    checkpointer: object

    def copy(self, update: dict[str, object] | None = None) -> Self:
        """Give the same graph with other attributes."""
        ...

    def ainvoke(
        self,
        input: object,  # noqa: A002  # LangGraph's own word
        config: Mapping[str, object],
        *,
        durability: str,
    ) -> Awaitable[object]:
        """Run it."""
        ...


def check_graph(found: object, name: str) -> ResumableGraph:
    """Check that a graph can go on elsewhere.

    Raises: BadInputError: it is not LangGraph's, or has a checkpointer of its own.
    """
    if not isinstance(found, ResumableGraph):
        raise BadInputError(
            f"agent {name!r}: expected a graph that LangGraph has compiled, found {type(found).__name__}; leave out"
            " resumable()"
        )
    if found.checkpointer not in (None, False):
        raise BadInputError(
            f"agent {name!r}: expected a graph without a checkpointer, found {type(found.checkpointer).__name__}, whose"
            " states no other worker can read; compile it without one, or leave out resumable()"
        )
    return found


async def run_graph(graph: ResumableGraph, begin: object, rollout: Rollout) -> object:
    """Run an attempt to its end, or to where it is to pause; then this does not return.

    Args:
        graph: from ``check_graph``.
        begin: the state that it begins in.
        rollout: the attempt, whose name is that of the thread.
    """
    from envs.resuming.graph_saver import PausedError, RolloutSaver  # noqa: PLC0415  # LangGraph is the agent's to bring

    saver = RolloutSaver(rollout)
    running = graph.copy({"checkpointer": saver})
    config = {"configurable": {"thread_id": rollout.trajectory_id}}
    try:
        return await running.ainvoke(None if saver.is_begun else begin, config, durability="sync")
    except PausedError:
        assert rollout.keeper is not None
        return await rollout.keeper.stay_paused()
