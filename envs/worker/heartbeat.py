"""This file holds the heartbeat: leases are kept from a thread, whatever the loop of the worker is busy with.

It beats in time, and at once when the worker is called: a rollout was cancelled, or is to pause.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Beat, Lease, Queue
from agent_layer.infra.processes import write_pulse
from agent_layer.schema import JsonObject

Phase: TypeAlias = Literal["running", "scoring", "sealing"]

_LISTEN_SECONDS = 1.0
"""Longest wait for a call, so that a heartbeat that is told to stop does not hold on."""
_AGAIN_SECONDS = 1.0
"""After a beat that nobody heard: a lease lasts only two of them."""
_CALM_SECONDS = 0.05
"""Least time between two beats, however often the worker is called."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews the leases that a worker holds, and says when one of them is not to go on.

    Args:
        queue: that gave the leases.
        worker: who holds them.
        about: what the worker says of itself.
        on_beat: called in the heartbeat's thread with a lease that is to ``pause``, or is ``cancel`` or ``lost``.
        on_drain: called there whenever the worker is told to end.
    """

    def __init__(
        self,
        queue: Queue,
        worker: str,
        about: JsonObject,
        on_beat: Callable[[Lease, Beat], None],
        on_drain: Callable[[], object],
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._about = about
        self._on_beat = on_beat
        self._on_drain = on_drain
        self._held: dict[str, tuple[Lease, Phase]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-layer heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the worker is shown from now on."""
        if (file := self._queue.settings.pulse_file) is not None:
            file.unlink(missing_ok=True)  # one from before says nothing of this worker
        self._thread.start()

    def stop(self) -> None:
        """End; leases that are still held lapse in time."""
        self._stopping.set()
        self._thread.join()

    def tell(self, **about: str) -> None:
        """Say more of the worker from now on; it is shown when this returns, unless Redis does not answer."""
        self._about = {**self._about, **about}
        self._beat()

    def keep(self, lease: Lease, phase: Phase) -> None:
        """Renew this lease until it is dropped."""
        self._held[lease.token] = (lease, phase)

    def drop(self, lease: Lease) -> None:
        """Let go of a lease that has ended."""
        self._held.pop(lease.token, None)

    def _run(self) -> None:
        heard = "0-0"
        every_seconds = self._queue.settings.heartbeat_seconds
        while not self._stopping.is_set():
            began = time.monotonic()
            wait_seconds = every_seconds if self._beat() else min(_AGAIN_SECONDS, every_seconds)
            heard = self._listen(heard, began + wait_seconds)

    def _listen(self, heard: str, until: float) -> str:
        """Wait until the next beat is due, or the worker is called; what it has heard by then."""
        while (left := until - time.monotonic()) > 0 and not self._stopping.wait(min(left, _CALM_SECONDS)):
            try:
                newest = self._queue.listen(self._worker, heard, min(left, _LISTEN_SECONDS))
            except RedisError:  # the next beat says so
                self._stopping.wait(min(left, _LISTEN_SECONDS))
                continue
            if newest != heard:
                return newest
        return heard

    def _beat(self) -> bool:
        """Say what is held and do as the answers say; False when nobody answered."""
        held = list(self._held.values())
        about = msgspec.json.encode({**self._about, "held": len(held)})
        try:
            beats = self._queue.heartbeat(self._worker, about, held)
        except RedisError as error:
            _log.warning("heartbeat failed error=%s", error)
            return False
        self._show_pulse()
        if beats.is_draining:
            self._on_drain()
        for (lease, _), beat in zip(held, beats.leases, strict=True):
            if beat != "go" and lease.token in self._held:
                self._on_beat(lease, beat)
        return True

    def _show_pulse(self) -> None:
        if (file := self._queue.settings.pulse_file) is None:
            return
        try:
            write_pulse(file, self._worker, is_draining="draining" in self._about)
        except OSError as error:  # a full disk fails the probe, not the leases
            _log.warning("pulse is not written file=%s error=%s", file, error)
