"""Life cycle of a shipper: it ships as long as the directory has writers, lingers, then exits."""

import logging
import os
import threading
import time
from pathlib import Path

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra import Backoff
from agent_layer.infra.processes import is_locked, try_lock
from agent_layer.settings import Settings
from agent_layer.shipper.destination import open_destination
from agent_layer.shipper.ship import Shipper

_BACKOFF = Backoff(0.1, 5.0)
_REPEAT_LOG_SECONDS = 60.0

log = logging.getLogger(__name__)


class ShipperLoop:
    """Main loop of one shipper process.

    Args:
        lock: descriptor of the lock that marks the shipper of this directory as running.
        stop: set when the process is to end; logs in transit are finished.
    """

    def __init__(self, settings: Settings, lock: int, stop: threading.Event) -> None:
        self._settings = settings
        self._directory: Path = settings.log_dir.absolute()
        self._writers_lock = self._directory / "writers.lock"
        self._lock = lock
        self._stop = stop
        self._shipper: Shipper | None = None
        self._needed_at = time.monotonic()
        self._num_failures = 0
        self._logged_error, self._logged_at = "", 0.0

    def run(self) -> bool:
        """Ship until the last writer is gone or ``stop`` is set; False: gave up, and logs remain."""
        try:
            return self._ship_while_needed()
        finally:
            if self._shipper is not None:
                self._shipper.close()

    def _ship_while_needed(self) -> bool:
        while not self._stop.is_set():
            self._check_writers()
            try:
                if self._ship_or_leave():
                    return True
            except (UnreachableError, CorruptRecordError, OSError) as error:
                if not self._wait_after(error):
                    return False
        return True

    def _ship_or_leave(self) -> bool:
        """Do one round; return whether it was the last."""
        shipper = self._shipper = self._shipper or Shipper(
            self._directory, open_destination(self._settings), self._stop
        )
        num_shipped = shipper.ship_pending()
        self._num_failures = 0
        if num_shipped:
            return False
        if self._unneeded_seconds > self._settings.ship_linger_seconds and self._leave(shipper):
            return True
        self._stop.wait(self._settings.ship_poll_seconds)
        return False

    def _check_writers(self) -> None:
        if is_locked(self._writers_lock):
            self._needed_at = time.monotonic()

    @property
    def _unneeded_seconds(self) -> float:
        return time.monotonic() - self._needed_at

    def _leave(self, shipper: Shipper) -> bool:
        """Release the shipper's lock unless there is work after all; return whether it was released.

        A writer that starts meanwhile waits for the writers' lock, and then finds the shipper's lock free.
        """
        if (writers := try_lock(self._writers_lock)) is None:
            return False
        try:
            if shipper.has_logs():  # asks no server: a slow one would block new writers
                return False
            os.close(self._lock)
            return True
        finally:
            os.close(writers)

    def _wait_after(self, error: Exception) -> bool:
        """Wait before the next try; return whether there is one. There always is while the directory has writers."""
        self._check_writers()  # a failed round lasted long, because each server was retried
        if self._unneeded_seconds > self._settings.retry_seconds:
            log.error("shipping given up, logs stay directory=%s error=%s", self._directory, error)
            return False
        self._num_failures += 1
        delay_seconds = _BACKOFF.delay_seconds(self._num_failures)
        self._log_failure(error, delay_seconds)
        self._stop.wait(delay_seconds)
        return True

    def _log_failure(self, error: Exception, delay_seconds: float) -> None:
        """Log what failed; repeat the same only at intervals, so that an outage of days fills no disk."""
        if repr(error) != self._logged_error or time.monotonic() > self._logged_at + _REPEAT_LOG_SECONDS:
            self._logged_error, self._logged_at = repr(error), time.monotonic()
            log.warning("shipping failed next_try_seconds=%g error=%s", delay_seconds, error)
