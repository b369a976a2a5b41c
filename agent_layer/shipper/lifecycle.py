"""This file holds the life of a shipper: it works for as long as anybody writes, and leaves when nobody does."""

import logging
import os
import threading
import time
from pathlib import Path

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra.processes import is_locked, try_lock
from agent_layer.settings import Settings
from agent_layer.shipper.destination import open_destination
from agent_layer.shipper.ship import Shipper

_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 5.0
_COMPLAINT_SECONDS = 60.0

log = logging.getLogger(__name__)


class ShipperLoop:
    """The work of one shipper process.

    Args:
        lock: descriptor of the lock that says that this directory has its shipper.
        stop: set when the process is asked to end; what is in transit is finished.
    """

    def __init__(self, settings: Settings, lock: int, stop: threading.Event) -> None:
        self._settings = settings
        self._directory: Path = settings.log_dir.absolute()
        self._writers_lock = self._directory / "writers.lock"
        self._lock = lock
        self._stop = stop
        self._shipper: Shipper | None = None
        self._wanted_at = time.monotonic()
        self._delay_seconds = _FIRST_DELAY_SECONDS
        self._complaint, self._complained_at = "", 0.0

    def run(self) -> bool:
        """Ship until nobody writes any more, or until asked to stop; False: gave up, and logs stay behind."""
        try:
            return self._ship_as_long_as_wanted()
        finally:
            if self._shipper is not None:
                self._shipper.close()

    def _ship_as_long_as_wanted(self) -> bool:
        while not self._stop.is_set():
            self._look_for_writers()
            try:
                if self._ship_or_leave():
                    return True
            except (UnreachableError, CorruptRecordError, OSError) as error:
                if not self._wait_after(error):
                    return False
        return True

    def _ship_or_leave(self) -> bool:
        """Do one round; says whether it was the last."""
        shipper = self._shipper = self._shipper or Shipper(
            self._directory, open_destination(self._settings), self._stop
        )
        num_shipped = shipper.ship_pending()
        self._delay_seconds = _FIRST_DELAY_SECONDS
        if num_shipped:
            return False
        if self._unwanted_seconds > self._settings.ship_linger_seconds and self._leave(shipper):
            return True
        self._stop.wait(self._settings.ship_poll_seconds)
        return False

    def _look_for_writers(self) -> None:
        if is_locked(self._writers_lock):
            self._wanted_at = time.monotonic()

    @property
    def _unwanted_seconds(self) -> float:
        return time.monotonic() - self._wanted_at

    def _leave(self, shipper: Shipper) -> bool:
        """Let go, unless there is work after all.

        Whoever begins to write meanwhile waits for the writers' lock, and then finds the shipper's lock free.
        """
        if (writers := try_lock(self._writers_lock)) is None:
            return False
        try:
            if shipper.has_logs():  # asks no server: while one is slow, whoever begins to write would stand still
                return False
            os.close(self._lock)
            return True
        finally:
            os.close(writers)

    def _wait_after(self, error: Exception) -> bool:
        """Wait before the next try; says whether there is to be one. While anybody writes there always is."""
        self._look_for_writers()  # a round that failed has lasted long, since each server was tried for a time
        if self._unwanted_seconds > self._settings.retry_seconds:
            log.error("shipping given up, logs stay directory=%s error=%s", self._directory, error)
            return False
        self._complain(error)
        self._stop.wait(self._delay_seconds)
        self._delay_seconds = min(2 * self._delay_seconds, _LONGEST_DELAY_SECONDS)
        return True

    def _complain(self, error: Exception) -> None:
        """Say what failed; the same again only now and then, so that an outage of days fills no disk."""
        if repr(error) != self._complaint or time.monotonic() > self._complained_at + _COMPLAINT_SECONDS:
            self._complaint, self._complained_at = repr(error), time.monotonic()
            log.warning("shipping failed next_try_seconds=%g error=%s", self._delay_seconds, error)
