"""This file holds what a worker does so that an attempt may change hands: take it on, pause it, leave it behind."""

import dataclasses
import logging
from collections.abc import Callable

from agent_layer.dispatcher import Lease
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import RolloutStatus
from agent_layer.state import Checkpoint, read_checkpoint
from envs.checkpoints import LeaseCheckpointer
from envs.worker.context import WorkerContext
from tracer.core import Rollout

_log = logging.getLogger(__name__)


class Resumability:
    """One holding of an attempt; where the agent is not resumable, it ends with the worker.

    Args:
        lease: by which it is held.
        place: where it is done.
        on_paused: called when an agent in this process has come to where it pauses.
    """

    def __init__(self, lease: Lease, place: WorkerContext, on_paused: Callable[[], None]) -> None:
        self._lease = lease
        self._place = place
        self._on_paused = on_paused
        self._keeper: LeaseCheckpointer | None = None
        self._is_pausing = False
        self.used_seconds = 0.0
        """Of the attempt's time, by the holders before."""

    @property
    def is_taken_on(self) -> bool:
        """Whether another holder had begun the attempt."""
        return self._lease.checkpoint is not None

    async def read(self) -> Checkpoint | None:
        """From where the attempt goes on; None: it begins.

        Raises:
            NotFoundError, CorruptRecordError, BadInputError: it cannot go on here.
            UnreachableError: the object store does not answer.
        """
        if self._lease.checkpoint is None:
            return None
        if (shelf := self._place.shelf) is None:
            raise BadInputError(
                f"attempt {self._lease.trajectory_id}: expected a resumable agent to go on with it, found"
                f" {self._place.agent}, which is not declared so; let all workers run the same code"
            )
        found = await self._place.call(read_checkpoint, shelf.keys, shelf.objects, self._lease.checkpoint)
        self.used_seconds = found.seconds
        return found

    def attach(self, rollout: Rollout, checkpoint: Checkpoint | None) -> Rollout:
        """Let the agent save, and find what was saved before."""
        if (shelf := self._place.shelf) is None:
            return rollout
        gateway = self._place.gateway
        self._keeper = LeaseCheckpointer(
            self._lease,
            shelf,
            mark=lambda: gateway.mark(rollout.rollout_id, rollout.attempt, rollout.api_key),
            logs=lambda: rollout.logs,
            on_paused=self._on_paused,
        )
        self._keeper.is_pausing = self._is_pausing
        return dataclasses.replace(rollout, keeper=self._keeper, kept=checkpoint and checkpoint.state)

    def pause(self) -> bool:
        """Have the agent pause at its next boundary; False: it cannot."""
        self._is_pausing = True
        if self._keeper is not None:
            self._keeper.is_pausing = True
        return self._place.shelf is not None

    def goes_on(self, status: RolloutStatus, stop: str | None) -> bool:
        """Whether an attempt that ended here so goes on elsewhere."""
        has_saved = self._keeper is not None and self._keeper.newest is not None
        return status == "paused" or (stop in ("drain", "lost") and has_saved)

    async def leave(self, rollout: Rollout) -> None:
        """Let go of an attempt that goes on elsewhere; should the gateway not hear of it, its key expires."""
        try:
            await self._place.call(self._place.gateway.pause, rollout.rollout_id, rollout.attempt, rollout.api_key)
        except AgentLayerError as error:
            _log.warning("attempt not paused at the gateway trajectory=%s error=%s", rollout.trajectory_id, error)

    async def clear(self) -> None:
        """Remove what is kept of an attempt that goes on nowhere."""
        name = self._keeper.newest if self._keeper is not None else self._lease.checkpoint
        if (shelf := self._place.shelf) is not None and name is not None:
            await self._place.call(shelf.remove, name)
