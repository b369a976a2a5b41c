"""Life cycle of a shipper: it ships as long as the directory has writers, lingers, then exits."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra import Backoff, is_locked, try_lock
from agent_layer.recorder import SHIPPER_REFUSAL
from agent_layer.settings import Settings
from agent_layer.shipper.destination import open_destination
from agent_layer.shipper.ship import Shipper

_BACKOFF = Backoff(0.1, 5.0)
_REPEAT_LOG_SECONDS = 60.0
_MAX_LOGGED = 16
"""Different failures that are logged in that time."""

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
        """Of rounds, in a row; logs count their own."""
        self._logged: dict[str, float] = {}
        """When each failure was logged."""

    def run(self) -> bool:
        """Ship until the last writer or the directory is gone, or ``stop`` is set; False: gave up, and logs remain."""
        try:
            return self._ship_while_needed()
        finally:
            if self._shipper is not None:
                self._shipper.close()

    def _ship_while_needed(self) -> bool:
        while not self._stop.is_set():
            if os.fstat(self._lock).st_nlink == 0:  # opening anything would make the directory, and Redis in it, again
                log.warning("shipper ended, its directory was removed directory=%s", self._directory)
                return True
            self._check_writers()
            try:
                errors = self._ship_or_leave()
                self._num_failures = 0
            except (UnreachableError, CorruptRecordError, OSError) as error:  # no single log's failure
                errors = [error]
                self._num_failures += 1
                self._stop.wait(_BACKOFF.delay_seconds(self._num_failures))
            if errors is None:
                return True
            self._report(errors)
            for error in errors:
                # few at a time and the same only at intervals, so that an outage of days fills no disk
                now = time.monotonic()
                self._logged = {text: at for text, at in self._logged.items() if now - at < _REPEAT_LOG_SECONDS}
                if repr(error) not in self._logged and len(self._logged) < _MAX_LOGGED:
                    self._logged[repr(error)] = now
                    log.warning("shipping failed, it is tried again error=%s", error)
            self._check_writers()  # a failure lasts long, because each server is retried
            if errors and self._unneeded_seconds > self._settings.retry_seconds:
                log.error("shipping given up, logs stay directory=%s error=%s", self._directory, errors[0])
                return False
        return True

    def _report(self, errors: Sequence[Exception]) -> None:  # kept: beside what is logged, for other processes
        """Let writers read why their records wait, as long as something is refused."""
        path = self._directory / SHIPPER_REFUSAL
        with suppress(OSError):  # the log has it, too
            if errors:
                path.write_text(str(errors[0]))
            elif self._shipper is not None and self._shipper.is_idle:
                path.unlink(missing_ok=True)

    def _ship_or_leave(self) -> list[Exception] | None:
        """Do one round; return what failed, or None where it was the last round."""
        shipper = self._shipper = self._shipper or Shipper(
            self._directory, open_destination(self._settings), self._stop
        )
        shipped = shipper.ship_ready(self._settings.ship_poll_seconds)
        if shipped.num_shipped == 0:
            is_unneeded = self._unneeded_seconds > self._settings.ship_linger_seconds
            if shipper.is_idle and is_unneeded and self._leave(shipper):
                return None
            self._stop.wait(self._settings.ship_poll_seconds)
        return list(shipped.errors.values())

    def _check_writers(self) -> None:
        try:
            is_needed = is_locked(self._writers_lock)
        except OSError:  # not known: there may be a writer
            is_needed = True
        if is_needed:
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
