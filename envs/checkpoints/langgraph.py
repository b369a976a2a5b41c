"""This file holds the run of a resumable LangGraph graph: begun with its input, or gone on with after a superstep.

This file holds LangGraph's checkpoints as one state that a rollout saves: after each superstep of the outer
graph.

Inside a superstep nothing is saved: nodes that run side by side are at different places, and only between
supersteps is
every model call either part of the state or yet to be made. Of what inner graphs remember, only what outlives
their
node is kept.
"""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)

from agent_layer.errors import BadInputError
from tracer.core import Rollout

_Packed: TypeAlias = tuple[str, bytes]
"""A value as LangGraph's own serialisation gives it: kind and bytes."""
_COUNTERS: Final = "counters_since_delta_snapshot"
"""In the metadata of graphs whose channels are stored as changes: their state needs earlier checkpoints too."""
_INSIDE_TASK: Final = ":"
"""In namespaces of inner graphs that belong to one run of a node."""


class PausedError(Exception):
    """The attempt pauses between these two supersteps."""


class _Write(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    task_path: str
    index: int
    channel: str
    value: _Packed


class _Kept(msgspec.Struct, kw_only=True):
    """One checkpoint of one graph."""

    id: str
    parent: str | None
    checkpoint: _Packed
    metadata: _Packed
    needs_parent: bool
    writes: list[_Write] = []


_Threads: TypeAlias = dict[str, list[_Kept]]
"""By namespace, oldest first."""


class RolloutSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of one attempt.

    Args: rollout: what was saved of it before is where the graph goes on.
    """

    def __init__(self, rollout: Rollout) -> None:
        super().__init__()
        self._rollout = rollout
        self._threads: _Threads = {} if rollout.kept is None else msgspec.msgpack.decode(rollout.kept, type=_Threads)

    @property
    def is_begun(self) -> bool:
        """Whether there is a state to go on from."""
        return "" in self._threads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See BaseCheckpointSaver."""
        place = _place_of(config)
        wanted = config.get("configurable", {}).get("checkpoint_id")
        for kept in reversed(self._threads.get(place["checkpoint_ns"], [])):
            if wanted in (None, kept.id):
                return self._tuple_of(place, kept)
        return None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See BaseCheckpointSaver."""
        return self.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's own word
        before: RunnableConfig | None = None,  # noqa: ARG002
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See BaseCheckpointSaver; there is no history to be filtered."""
        found = self.get_tuple(config) if config is not None and not filter and limit != 0 else None
        yield from [found] if found is not None else []

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's own word
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See BaseCheckpointSaver."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  # the whole state is kept
    ) -> RunnableConfig:
        """See BaseCheckpointSaver.

        Raises: PausedError: the state is saved, and the attempt is to pause here. LeaseLostError: see Rollout.save.
        """
        place = _place_of(config)
        kept = _Kept(
            id=checkpoint["id"],
            parent=config.get("configurable", {}).get("checkpoint_id"),
            checkpoint=self.serde.dumps_typed(checkpoint),
            metadata=self.serde.dumps_typed(metadata),
            needs_parent=_COUNTERS in metadata,
        )
        line = self._threads.setdefault(place["checkpoint_ns"], [])
        self._threads[place["checkpoint_ns"]] = [*line, kept] if kept.needs_parent else [kept]
        if place["checkpoint_ns"] == "":
            await self._save()
        return {"configurable": {**place, "checkpoint_id": kept.id}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See BaseCheckpointSaver."""
        found = _place_of(config), config.get("configurable", {}).get("checkpoint_id")
        for kept in self._threads.get(found[0]["checkpoint_ns"], []):
            if kept.id == found[1]:
                new = [
                    _Write(task_id, task_path, index, channel, self.serde.dumps_typed(value))
                    for index, (channel, value) in enumerate(writes)
                ]
                told = {(one.task_id, one.index): one for one in [*kept.writes, *new]}
                kept.writes = sorted(
                    told.values(), key=lambda one: writes_sort_key(one.task_path, one.task_id, one.index)
                )

    async def _save(self) -> None:
        if (keeper := self._rollout.keeper) is None:
            return
        self._threads = {name: line for name, line in self._threads.items() if _INSIDE_TASK not in name}
        if await keeper.keep(msgspec.msgpack.encode(self._threads)):
            raise PausedError

    def _tuple_of(self, place: dict[str, str], kept: _Kept) -> CheckpointTuple:
        parent: RunnableConfig | None = (
            {"configurable": {**place, "checkpoint_id": kept.parent}} if kept.parent is not None else None
        )
        return CheckpointTuple(
            config={"configurable": {**place, "checkpoint_id": kept.id}},
            checkpoint=self.serde.loads_typed(kept.checkpoint),
            metadata=self.serde.loads_typed(kept.metadata),
            parent_config=parent,
            pending_writes=[(one.task_id, one.channel, self.serde.loads_typed(one.value)) for one in kept.writes],
        )


def _place_of(config: RunnableConfig) -> dict[str, str]:
    told = config.get("configurable", {})
    return {"thread_id": str(told.get("thread_id", "")), "checkpoint_ns": str(told.get("checkpoint_ns", ""))}


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
    saver = RolloutSaver(rollout)
    running = graph.copy({"checkpointer": saver})
    config = {"configurable": {"thread_id": rollout.trajectory_id}}
    try:
        return await running.ainvoke(None if saver.is_begun else begin, config, durability="sync")
    except PausedError:
        assert rollout.keeper is not None
        return await rollout.keeper.stay_paused()
