"""Whether the gateway takes what this worker sends: its key, and trajectories of its namespace and store.

A gateway that restarts with another key refuses every attempt, however often it is tried. So a refusal is final: the
worker claims nothing more, the runs that it met are paused with the reason, and no attempt counts as a failure. Once
the gateway lets a worker in again, that worker resumes the runs which are paused for this reason.
"""

import logging
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.dispatcher import REFUSED, WorkerQueue
from agent_layer.errors import AccessRefusedError, AgentLayerError, NotFoundError
from agent_layer.settings import Settings
from agent_layer.state import find_mismatch
from tracer.transport import GatewayClient

_log = logging.getLogger(__name__)


class GatewayAccess:
    """Access of one worker to its gateway. Threads may share it; its methods block.

    Args:
        settings: of the worker.
        gateway: client with the worker's key.
        queue: where runs are paused.
    """

    def __init__(self, settings: Settings, gateway: GatewayClient, queue: WorkerQueue) -> None:
        self._settings = settings
        self._gateway = gateway
        self._queue = queue
        self._begin = f"{REFUSED}gateway {gateway.url} "
        self.is_refused = False
        """Whether the gateway has refused the worker since it took its key last."""

    def note(self, run: str, error: Exception) -> bool:
        """Return whether an error of an attempt says that the gateway refuses this worker; then pause its run."""
        if not isinstance(error, AccessRefusedError):
            return False
        _log.warning("gateway refuses this worker run=%s error=%s", run, error)
        self.is_refused = True
        why = (
            f"{self._begin}does not take the operator key of its workers; start it with the AGENT_LAYER_API_KEY that"
            " they have, or restart them with its own"
        )
        with suppress(RedisError):  # the next refusal pauses it
            self._queue.pause_refused(run, why)
        return True

    def check(self) -> None:
        """Ask the gateway whether it takes this worker, and resume the runs that were paused because it did not.

        Raises: AccessRefusedError: it does not. UnreachableError: it does not answer.
        """
        try:
            for facts in self._gateway.check_access():
                if found := find_mismatch(self._settings, facts):
                    raise AccessRefusedError(f"gateway {self._gateway.url}: {found}")
        except NotFoundError:  # a gateway of an earlier version, which knows the key
            pass
        self.is_refused = False
        for run in self._queue.resume_refused(self._begin):
            _log.warning("run goes on, the gateway takes the key again run=%s", run)

    def may_claim(self) -> bool:
        """Whether attempts can be opened, as far as it is known; asks a gateway that has refused one."""
        if self.is_refused:
            with suppress(AgentLayerError, RedisError):
                self.check()
        return not self.is_refused
