"""This file holds the keeper of one lease: it stores what the attempt saves, and notes it where the next holder
looks.

First the gateway marks how far the calls have come, then the object is stored, then the queue notes its name,
fenced by
the lease's token: a holder that lost the attempt cannot change from where others go on.
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
from agent_layer.infra.objects import ObjectStore
from agent_layer.infra.redis import Keys
from agent_layer.schema.wire import MarkedRollout
from agent_layer.state import Checkpoint, checkpoint_name, remove_checkpoint, store_checkpoint

_PASSING: Final = (UnreachableError, NotFoundError, RedisError)
"""Without this checkpoint the attempt goes on, too; should its gateway be gone, its next call says so."""

_log = logging.getLogger(__name__)


class CheckpointStore(msgspec.Struct, frozen=True, kw_only=True):
    """Where checkpoints are kept and noted."""

    keys: Keys
    objects: ObjectStore
    note: Callable[[Lease, str], str | None]
    """``Queue.checkpoint``."""
    pool: Executor
    """Threads in which all of this is done."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint from which nobody will go on; garbage collection finds what stays. Blocks."""
        try:
            remove_checkpoint(self.keys, self.objects, name)
        except UnreachableError as error:
            _log.warning("checkpoint not removed name=%s error=%s", name, error)


class LeaseCheckpointer:
    """Keeps what the attempt of a lease saves; see ``tracer.core.rollout_handle.Keeper``.

    Args:
        lease: whose attempt it is.
        shelf: where it is kept.
        mark: asks the gateway how far the attempt has come, as its holder.
        logs: names of the logs that hold records of the attempt.
        on_paused: called when the attempt has come to where it pauses; whoever runs the agent ends it.
    """

    def __init__(
        self,
        lease: Lease,
        shelf: CheckpointStore,
        *,
        mark: Callable[[], MarkedRollout],
        logs: Callable[[], set[str]],
        on_paused: Callable[[], None],
    ) -> None:
        self.is_pausing = False
        """The attempt is to pause at its next boundary."""
        self._lease = lease
        self._shelf = shelf
        self._mark = mark
        self._logs = logs
        self._on_paused = on_paused
        self._numbers = count()
        self.newest = lease.checkpoint
        """Name of the checkpoint from which the next holder would go on; None: it would begin anew."""
        self._one_by_one = asyncio.Lock()

    async def keep(self, state: bytes) -> bool:
        """See Keeper."""
        async with self._one_by_one:
            try:
                await asyncio.get_running_loop().run_in_executor(self._shelf.pool, self._keep, state)
            except _PASSING as error:
                _log.warning("checkpoint not kept trajectory=%s error=%s", self._lease.trajectory_id, error)
                return False
        return self.is_pausing

    async def stay_paused(self) -> object:
        """See Keeper."""
        self._on_paused()
        return await asyncio.get_running_loop().create_future()

    def _keep(self, state: bytes) -> None:
        mark, lease = self._mark(), self._lease
        name = checkpoint_name(lease.trajectory_id, lease.token, next(self._numbers))
        checkpoint = Checkpoint(calls=mark.calls, seconds=mark.seconds, state=state, logs=sorted(self._logs()))
        store_checkpoint(self._shelf.keys, self._shelf.objects, name, checkpoint)
        try:
            before = self._shelf.note(lease, name)
        except LeaseLostError:
            self._shelf.remove(name)
            raise
        self.newest = name
        if before is not None:
            self._shelf.remove(before)
