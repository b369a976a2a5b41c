"""LangGraph's checkpoints as one state that a rollout saves after each superstep of the outer graph.

Inside a superstep nothing is saved: nodes that run side by side are at different places, and only between supersteps is
every model call either part of the state or still to be made. Of inner graphs, only what outlives their node is saved.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, TypeAlias

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

from envs.resume import PausedError
from tracer.core import Rollout

_Packed: TypeAlias = tuple[str, bytes]
"""A value in LangGraph's own serialisation: kind and bytes."""
_COUNTERS: Final = "counters_since_delta_snapshot"
"""Metadata key of graphs whose channels are stored as changes; their state needs earlier checkpoints too."""
_INSIDE_TASK: Final = ":"
"""Marks namespaces of inner graphs that belong to one run of a node."""


class _Write(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    task_path: str
    index: int
    channel: str
    value: _Packed


class _StoredCheckpoint(msgspec.Struct, kw_only=True):
    """One checkpoint of one graph."""

    id: str
    parent: str | None
    checkpoint: _Packed
    metadata: _Packed
    needs_parent: bool
    writes: list[_Write] = []


_Threads: TypeAlias = dict[str, list[_StoredCheckpoint]]
"""Checkpoints by namespace, oldest first."""


class RolloutSaver(BaseCheckpointSaver[int]):
    """Saves the checkpoints of one attempt as one state of its rollout.

    Args: rollout: the attempt; the graph resumes from the state that an earlier holder saved.
    """

    def __init__(self, rollout: Rollout) -> None:
        super().__init__()
        self._rollout = rollout
        self._threads: _Threads = {} if rollout.kept is None else msgspec.msgpack.decode(rollout.kept, type=_Threads)

    @property
    def is_begun(self) -> bool:
        """Whether there is a state to resume from."""
        return "" in self._threads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See BaseCheckpointSaver."""
        place = _read_place(config)
        wanted = config.get("configurable", {}).get("checkpoint_id")
        for kept in reversed(self._threads.get(place["checkpoint_ns"], [])):
            if wanted in (None, kept.id):
                parent: RunnableConfig | None = (
                    {"configurable": {**place, "checkpoint_id": kept.parent}} if kept.parent is not None else None
                )
                return CheckpointTuple(
                    config={"configurable": {**place, "checkpoint_id": kept.id}},
                    checkpoint=self.serde.loads_typed(kept.checkpoint),
                    metadata=self.serde.loads_typed(kept.metadata),
                    parent_config=parent,
                    pending_writes=[
                        (one.task_id, one.channel, self.serde.loads_typed(one.value)) for one in kept.writes
                    ],
                )
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
        """See BaseCheckpointSaver; there is no history to filter."""
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
        new_versions: ChannelVersions,  # noqa: ARG002  # the whole state is saved
    ) -> RunnableConfig:
        """See BaseCheckpointSaver.

        Raises: PausedError: the state is saved, and the attempt pauses here. LeaseLostError: see Rollout.save.
        """
        place = _read_place(config)
        kept = _StoredCheckpoint(
            id=checkpoint["id"],
            parent=config.get("configurable", {}).get("checkpoint_id"),
            checkpoint=self.serde.dumps_typed(checkpoint),
            metadata=self.serde.dumps_typed(metadata),
            needs_parent=_COUNTERS in metadata,
        )
        line = self._threads.setdefault(place["checkpoint_ns"], [])
        self._threads[place["checkpoint_ns"]] = [*line, kept] if kept.needs_parent else [kept]
        if place["checkpoint_ns"] == "" and (keeper := self._rollout.keeper) is not None:
            self._threads = {name: line for name, line in self._threads.items() if _INSIDE_TASK not in name}
            if await keeper.keep(msgspec.msgpack.encode(self._threads)):
                raise PausedError
        return {"configurable": {**place, "checkpoint_id": kept.id}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See BaseCheckpointSaver."""
        place, checkpoint_id = _read_place(config), config.get("configurable", {}).get("checkpoint_id")
        for kept in self._threads.get(place["checkpoint_ns"], []):
            if kept.id == checkpoint_id:
                new = [
                    _Write(task_id, task_path, index, channel, self.serde.dumps_typed(value))
                    for index, (channel, value) in enumerate(writes)
                ]
                newest = {(one.task_id, one.index): one for one in [*kept.writes, *new]}
                kept.writes = sorted(
                    newest.values(), key=lambda one: writes_sort_key(one.task_path, one.task_id, one.index)
                )


def _read_place(config: RunnableConfig) -> dict[str, str]:
    configurable = config.get("configurable", {})
    return {
        "thread_id": str(configurable.get("thread_id", "")),
        "checkpoint_ns": str(configurable.get("checkpoint_ns", "")),
    }
