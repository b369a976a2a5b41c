"""Heartbeat of a worker: a thread renews its leases, so that a busy event loop cannot lose them.

It beats at intervals, and at once when the dispatcher signals the worker: a rollout was cancelled or has to pause.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, LeaseAnswer, WorkerQueue
from agent_layer.infra import write_pulse
from agent_layer.schema import JsonObject

LeasePhase: TypeAlias = Literal["running", "scoring", "sealing"]

_LISTEN_SECONDS = 1.0
"""Longest wait for a signal; bounds how long ``stop`` takes."""
_RETRY_SECONDS = 1.0
"""Delay after a failed beat: a lease lasts only two heartbeats."""
_MIN_INTERVAL_SECONDS = 0.05
"""Least time between two beats, however many signals arrive."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews the leases of a worker, and reports those that must not go on.

    Args:
        queue: queue that granted the leases.
        worker: name of their holder.
        about: what listings show of the worker.
        on_beat: called in the heartbeat's thread with each lease whose answer is ``pause``, ``cancel`` or ``lost``.
        on_drain: called there with each beat while the worker is asked to drain.
    """

    def __init__(
        self,
        queue: WorkerQueue,
        worker: str,
        about: JsonObject,
        on_beat: Callable[[Lease, LeaseAnswer], None],
        on_drain: Callable[[], object],
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._about = about
        self._on_beat = on_beat
        self._on_drain = on_drain
        self._held: dict[str, tuple[Lease, LeasePhase]] = {}
        self.num_beats = 0
        """Beats over all leases that have begun."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-layer heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on listings show the worker."""
        if (file := self._queue.settings.pulse_file) is not None:
            file.unlink(missing_ok=True)  # left by an earlier worker
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; leases still held expire."""
        self._stopping.set()
        self._thread.join()

    def announce(self, **about: str) -> None:
        """Add to what listings show of the worker, and beat at once."""
        self._about = {**self._about, **about}
        self._beat_all()

    def hold_lease(self, lease: Lease, phase: LeasePhase) -> None:
        """Renew this lease until ``drop_lease``."""
        self._held[lease.token] = (lease, phase)

    def catch_up(self, leases: Sequence[Lease]) -> None:
        """Beat for leases that are held now: a beat since they were granted may have answered a signal without them."""
        self._beat([held for lease in leases if (held := self._held.get(lease.token))])

    def drop_lease(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        self._held.pop(lease.token, None)

    def _run(self) -> None:
        last_signal = "0-0"
        every_seconds = self._queue.settings.heartbeat_seconds
        while not self._stopping.is_set():
            began = time.monotonic()
            wait_seconds = every_seconds if self._beat_all() else min(_RETRY_SECONDS, every_seconds)
            last_signal = self._wait_for_signal(last_signal, began + wait_seconds)

    def _wait_for_signal(self, last_signal: str, until: float) -> str:
        """Wait until the next beat is due or a signal arrives; return the id of the newest signal."""
        while (left := until - time.monotonic()) > 0 and not self._stopping.wait(min(left, _MIN_INTERVAL_SECONDS)):
            try:
                newest = self._queue.listen(self._worker, last_signal, min(left, _LISTEN_SECONDS))
            except RedisError:  # the next beat logs it
                self._stopping.wait(min(left, _LISTEN_SECONDS))
                continue
            if newest != last_signal:
                return newest
        return last_signal

    def _beat_all(self) -> bool:
        """Renew all leases, and act on the answers; False when Redis does not answer."""
        self.num_beats += 1  # before the leases are read; see ``catch_up``
        return self._beat(list(self._held.values()))

    def _beat(self, held: Sequence[tuple[Lease, LeasePhase]]) -> bool:
        about = msgspec.json.encode({**self._about, "held": len(self._held)})
        try:
            beats = self._queue.heartbeat(self._worker, about, held)
        except RedisError as error:
            _log.warning("heartbeat failed error=%s", error)
            return False
        if (file := self._queue.settings.pulse_file) is not None:
            try:
                write_pulse(file, self._worker, is_draining="draining" in self._about)
            except OSError as error:  # a full disk fails the probe, not the leases
                _log.warning("pulse is not written file=%s error=%s", file, error)
        if beats.is_draining:
            self._on_drain()
        for (lease, _), beat in zip(held, beats.leases, strict=True):
            if beat != "go" and lease.token in self._held:
                self._on_beat(lease, beat)
        return True
