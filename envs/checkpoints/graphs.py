"""Runs resumable LangGraph graphs: from the beginning, or from the superstep that an earlier holder saved."""

from collections.abc import Awaitable, Mapping
from typing import Protocol, Self, runtime_checkable

from agent_layer.errors import BadInputError
from envs.resume import PausedError
from tracer.core import Rollout


@runtime_checkable
class ResumableGraph(Protocol):
    """A graph that LangGraph has compiled."""

    checkpointer: object

    def copy(self, update: dict[str, object] | None = None) -> Self:
        """Return the same graph with other attributes."""
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
    """Check that another worker can resume a graph.

    Raises: BadInputError: it is not LangGraph's, or has a checkpointer of its own.
    """
    if not isinstance(found, ResumableGraph):
        raise BadInputError(
            f"agent {name!r}: resumable() needs a graph that LangGraph has compiled, found {type(found).__name__};"
            " leave out resumable()"
        )
    if found.checkpointer not in (None, False):
        raise BadInputError(
            f"agent {name!r}: its graph has a checkpointer ({type(found.checkpointer).__name__}) whose states no other"
            " worker can read; compile it without one, or leave out resumable()"
        )
    return found


async def run_graph(graph: ResumableGraph, initial_state: object, rollout: Rollout) -> object:
    """Run an attempt to its end; does not return if the attempt pauses.

    Args:
        graph: a graph that ``check_graph`` accepted.
        initial_state: state in which it begins.
        rollout: the attempt; its id names the thread.
    """
    from envs.checkpoints.langgraph import RolloutSaver  # noqa: PLC0415  # LangGraph is large, and optional

    saver = RolloutSaver(rollout)
    running = graph.copy({"checkpointer": saver})
    config = {"configurable": {"thread_id": rollout.trajectory_id}}
    try:
        return await running.ainvoke(None if saver.is_begun else initial_state, config, durability="sync")
    except PausedError:
        assert rollout.keeper is not None
        return await rollout.keeper.stay_paused()
