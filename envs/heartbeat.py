"""This file holds the heartbeat: leases are kept from a thread, so that an agent that blocks the loop keeps them."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, Queue
from agent_layer.dispatcher.records import Beat
from agent_layer.schema.record import JsonObject

__all__ = ["Heartbeat", "Phase"]

Phase: TypeAlias = Literal["running", "scoring", "sealing"]

_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews the leases that a worker holds, and says when one of them is to be given up.

    Args:
        queue: that gave the leases.
        worker: who holds them.
        about: what the worker says of itself.
        on_end: called in the heartbeat's thread with a lease that is ``cancel`` or ``lost``.
        renew_keys: called there with the attempts whose agents run; must not wait.
    """

    def __init__(
        self,
        queue: Queue,
        worker: str,
        about: JsonObject,
        on_end: Callable[[Lease, Beat], None],
        renew_keys: Callable[[Sequence[str]], object],
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._about = about
        self._on_end = on_end
        self._renew_keys = renew_keys
        self._held: dict[str, tuple[Lease, Phase]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-layer heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the worker is shown from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End; leases that are still held lapse in time."""
        self._stopping.set()
        self._thread.join()

    def keep(self, lease: Lease, phase: Phase) -> None:
        """Renew this lease until it is dropped."""
        self._held[lease.token] = (lease, phase)

    def drop(self, lease: Lease) -> None:
        """Let go of a lease that has ended."""
        self._held.pop(lease.token, None)

    def _run(self) -> None:
        self._beat()
        while not self._stopping.wait(self._queue.settings.heartbeat_seconds):
            self._beat()
            if running := [lease.trajectory_id for lease, phase in list(self._held.values()) if phase == "running"]:
                self._renew_keys(running)

    def _beat(self) -> None:
        held = list(self._held.values())
        about = msgspec.json.encode({**self._about, "held": len(held)})
        try:
            answers = self._queue.heartbeat(self._worker, about, held)
        except RedisError as error:
            _log.warning("heartbeat failed error=%s", error)
            return
        for (lease, _), answer in zip(held, answers, strict=True):
            if answer != "go" and lease.token in self._held:
                self._on_end(lease, answer)
