"""How an attempt changes holders: resume from a checkpoint, pause, hand over."""

import dataclasses
import logging
from collections.abc import Callable

from agent_layer.dispatcher import Lease
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import AttemptStarted, RolloutStatus
from agent_layer.state import Checkpoint, read_checkpoint
from envs.checkpoints import LeaseCheckpointer
from envs.worker.context import WorkerContext
from tracer.core import Rollout

_log = logging.getLogger(__name__)


class Resumability:
    """One worker's part of a resumable attempt; if the agent is not resumable, the attempt ends with the worker.

    An attempt with a sandbox is not resumable: another holder would find none of its files. It begins again.

    Args:
        lease: permission to make the attempt.
        context: the worker that makes it.
        on_paused: called when an agent in this process reaches the boundary at which it pauses.
    """

    def __init__(self, lease: Lease, context: WorkerContext, on_paused: Callable[[], None]) -> None:
        self._lease = lease
        self._context = context
        has_sandbox = context.sandboxes.spec_for(lease.task) is not None
        self._checkpoints = None if has_sandbox else context.checkpoints
        self._on_paused = on_paused
        self._checkpointer: LeaseCheckpointer | None = None
        self._is_pausing = False
        self._used_seconds = 0.0
        """Part of the attempt's time that earlier holders used."""

    @property
    def is_resumed(self) -> bool:
        """Whether another holder began the attempt."""
        return self._lease.checkpoint is not None

    @property
    def left_seconds(self) -> float | None:
        """Time that the task's limit leaves to this holder; None: there is no limit."""
        limit = self._lease.task.limits.wall_seconds
        return None if limit is None else max(0.0, limit - self._used_seconds)

    async def read_checkpoint(self) -> Checkpoint | None:
        """Return the state from which the attempt resumes; None: it begins.

        Raises:
            NotFoundError, CorruptRecordError, BadInputError: it cannot resume here.
            UnreachableError: the object store does not answer.
        """
        if self._lease.checkpoint is None:
            return None
        if (checkpoints := self._checkpoints) is None:
            raise BadInputError(
                f"attempt {self._lease.trajectory_id}: cannot resume, {self._context.agent} is not declared resumable"
                " in this worker; run the same code in all workers"
            )
        found = await self._context.call(read_checkpoint, checkpoints.keys, checkpoints.objects, self._lease.checkpoint)
        self._used_seconds = found.seconds
        return found

    def attach(self, rollout: Rollout, started: AttemptStarted, checkpoint: Checkpoint | None) -> Rollout:
        """Return the rollout with which the agent can save states and find the one saved before."""
        if (checkpoints := self._checkpoints) is None:
            return rollout
        gateway = self._context.gateway
        self._checkpointer = LeaseCheckpointer(
            self._lease,
            checkpoints,
            mark=lambda: gateway.mark(rollout.rollout_id, rollout.attempt, rollout.api_key),
            logs=lambda: rollout.logs,
            started=started,
            on_paused=self._on_paused,
        )
        self._checkpointer.is_pausing = self._is_pausing
        return dataclasses.replace(rollout, keeper=self._checkpointer, kept=checkpoint and checkpoint.state)

    def request_pause(self) -> bool:
        """Make the agent pause at its next boundary; False: it cannot."""
        self._is_pausing = True
        if self._checkpointer is not None:
            self._checkpointer.is_pausing = True
        return self._checkpoints is not None

    def continues_elsewhere(self, status: RolloutStatus, stop: str | None) -> bool:
        """Whether another holder goes on with an attempt that ended here with this status, for this reason."""
        has_saved = self._checkpointer is not None and self._checkpointer.newest is not None
        return status == "paused" or (stop in ("drain", "lost") and has_saved)

    async def pause_at_gateway(self, rollout: Rollout) -> None:
        """Release the attempt at the gateway; if the gateway does not answer, its key expires."""
        try:
            await self._context.call(self._context.gateway.pause, rollout.rollout_id, rollout.attempt, rollout.api_key)
        except AgentLayerError as error:
            _log.warning("attempt not paused at the gateway trajectory=%s error=%s", rollout.trajectory_id, error)

    async def remove_checkpoint(self) -> None:
        """Remove the newest checkpoint of an attempt that has ended for good."""
        name = self._checkpointer.newest if self._checkpointer is not None else self._lease.checkpoint
        if (checkpoints := self._checkpoints) is not None and name is not None:
            await self._context.call(checkpoints.remove, name)
