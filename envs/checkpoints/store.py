"""Stores what a resumable attempt saves, and names the checkpoint from which its next holder resumes.

First the gateway marks the position of the calls, then the object is stored, then the queue commits its name, fenced by
the lease's token: a holder that lost the attempt cannot change where others resume.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from typing import Final

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease
from agent_layer.errors import LeaseLostError, NotFoundError, UnreachableError
from agent_layer.infra import Keys, ObjectStore
from agent_layer.schema import AttemptStarted, MarkedRollout
from agent_layer.state import Checkpoint, checkpoint_name, remove_checkpoint, store_checkpoint

_PASSING: Final = (UnreachableError, NotFoundError, RedisError)
"""The attempt goes on without this checkpoint; if its gateway is gone, its next call fails."""

_log = logging.getLogger(__name__)


class CheckpointStore(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that hold checkpoints, and the queue that names the newest of each attempt."""

    keys: Keys
    objects: ObjectStore
    commit_name: Callable[[Lease, str], str | None]
    """``WorkerQueue.checkpoint``: names the newest checkpoint under the lease, and returns the one before."""
    pool: Executor
    """Threads in which all of this runs."""

    def remove(self, name: str) -> None:
        """Remove an unused checkpoint; blocks. Garbage collection removes it if this fails."""
        try:
            remove_checkpoint(self.keys, self.objects, name)
        except UnreachableError as error:
            _log.warning("checkpoint not removed name=%s error=%s", name, error)


class LeaseCheckpointer:
    """Stores the states that the attempt of a lease saves.

    Args:
        lease: permission to make the attempt.
        store: receives the checkpoints.
        mark: asks the gateway, as the attempt's holder, for the position of its calls.
        logs: returns the names of logs with records of the attempt.
        started: the attempt's recorded start.
        on_paused: called at the boundary at which the attempt pauses; it ends the agent's run.
    """

    def __init__(
        self,
        lease: Lease,
        store: CheckpointStore,
        *,
        mark: Callable[[], MarkedRollout],
        logs: Callable[[], set[str]],
        started: AttemptStarted,
        on_paused: Callable[[], None],
    ) -> None:
        self.is_pausing = False
        """Whether the attempt pauses at its next boundary."""
        self._lease = lease
        self._store = store
        self._mark = mark
        self._logs = logs
        self._started = started
        self._on_paused = on_paused
        self._numbers = count()
        self.newest = lease.checkpoint
        """Name of the checkpoint from which the next holder resumes; None: it starts from the beginning."""
        self._save_lock = asyncio.Lock()

    async def keep(self, state: bytes) -> bool:
        """See the protocol of ``Rollout.keeper``."""
        async with self._save_lock:
            try:
                await asyncio.get_running_loop().run_in_executor(self._store.pool, self._store_state, state)
            except _PASSING as error:
                _log.warning("checkpoint not stored trajectory=%s error=%s", self._lease.trajectory_id, error)
                return False
        return self.is_pausing

    async def stay_paused(self) -> object:
        """See the protocol of ``Rollout.keeper``."""
        self._on_paused()
        return await asyncio.get_running_loop().create_future()

    def _store_state(self, state: bytes) -> None:
        mark, lease = self._mark(), self._lease
        name = checkpoint_name(lease.trajectory_id, lease.token, next(self._numbers))
        checkpoint = Checkpoint(
            calls=mark.calls, seconds=mark.seconds, state=state, logs=sorted(self._logs()), started=self._started
        )
        store_checkpoint(self._store.keys, self._store.objects, name, checkpoint)
        try:
            before = self._store.commit_name(lease, name)
        except LeaseLostError:
            self._store.remove(name)
            raise
        self.newest = name
        if before is not None:
            self._store.remove(before)
