"""Shipping: closed logs are brought to their destination, then deleted.

In this order: fsync of the log, commit at the destination, deletion. If a shipper dies in between, its successor brings
the same log under the same name, so that nothing is lost and nothing is stored twice.

Each log goes its own way, and so do the dispatcher's decisions: what is slow or refused delays nothing but itself.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final, NamedTuple

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra import Backoff
from agent_layer.recorder import CLOSED, CORRUPT, OPEN, adopt, is_damaged, read_frames
from agent_layer.shipper.destination import Destination

_NAME = "[0-9a-z]" * 26 + "-*"
"""Pattern of log names; other files of the directory are not logs."""
_DECISIONS: Final = Path()
"""Stands for the dispatcher's decisions among the logs."""
_BACKOFF = Backoff(0.1, 5.0)

log = logging.getLogger(__name__)


class Shipped(NamedTuple):
    """What ended since the last look."""

    num_shipped: int
    """Logs and segments of decisions."""
    errors: dict[Path, Exception]
    """What failed, and why. It is tried again later."""
    ended: set[Path]


class _Failures(NamedTuple):
    num: int
    """Number of failures in a row."""
    retry_at: float


class Shipper:
    """Ships one log directory to one destination; once ``stop`` is set, it starts no further log."""

    def __init__(self, directory: Path, destination: Destination, stop: threading.Event) -> None:
        self._directory = directory
        self._destination = destination
        self._stop = stop
        self._in_transit: dict[Path, Future[int]] = {}
        self._failures: dict[Path, _Failures] = {}
        self._threads = ThreadPoolExecutor(destination.num_at_once + 1, thread_name_prefix="ship")

    def ship_ready(self, wait_seconds: float) -> Shipped:
        """Start what is ready, wait until something ends, at most so long, and return what ended."""
        logs = self._find_logs()
        self._failures = {path: one for path, one in self._failures.items() if path in (_DECISIONS, *logs)}
        now = time.monotonic()
        delayed = {path for path, one in self._failures.items() if one.retry_at > now}
        return self._advance([one for one in (_DECISIONS, *logs) if one not in delayed], wait_seconds)

    def ship_pending(self) -> int:
        """Try all that is there once, logs before decisions; return the number of shipped logs and segments.

        Raises: UnreachableError, CorruptRecordError, OSError: the first failure; what failed remains.
        """
        num_shipped, errors = 0, dict[Path, Exception]()
        for logs in (set(self._find_logs()), {_DECISIONS}):
            ended = set[Path]()
            while waiting := logs - ended:
                shipped = self._advance(sorted(waiting), None)
                num_shipped += shipped.num_shipped
                errors |= shipped.errors
                ended |= shipped.ended
        for error in errors.values():
            raise error
        return num_shipped

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in transit, and nothing waits to be tried again."""
        return not self._in_transit and not self._failures

    def close(self) -> None:
        """Wait for logs in transit, and close the destination."""
        self._threads.shutdown()
        self._destination.close()

    def _advance(self, ready: Iterable[Path], wait_seconds: float | None) -> Shipped:
        for path in ready:
            num_logs = len(self._in_transit.keys() - {_DECISIONS})
            if path not in self._in_transit and (path == _DECISIONS or num_logs < self._destination.num_at_once):
                self._in_transit[path] = self._threads.submit(self._task(path))
        done, _ = wait(self._in_transit.values(), wait_seconds, FIRST_COMPLETED)
        num_shipped, errors = 0, dict[Path, Exception]()
        ended = {path for path, shipping in self._in_transit.items() if shipping in done}
        for path in sorted(ended):
            try:
                num_shipped += self._in_transit.pop(path).result()
                self._failures.pop(path, None)
            except (UnreachableError, CorruptRecordError, OSError) as error:
                num = 1 + (self._failures[path].num if path in self._failures else 0)
                self._failures[path] = _Failures(num, time.monotonic() + _BACKOFF.delay_seconds(num))
                errors[path] = error
        return Shipped(num_shipped, errors, ended)

    def _task(self, path: Path) -> Callable[[], int]:
        return self._destination.ship_decisions if path == _DECISIONS else lambda: self._ship_log(path)

    def has_logs(self) -> bool:
        """Whether the directory has logs, with or without a writer."""
        return any(path for ending in (OPEN, CLOSED) for path in self._directory.glob(f"{_NAME}{ending}"))

    def _find_logs(self) -> list[Path]:
        """Return logs without a writer, oldest first."""
        for path in self._directory.glob(f"{_NAME}{OPEN}"):
            if adopt(path):
                log.info("log adopted name=%s", path.stem)
        return sorted(self._directory.glob(f"{_NAME}{CLOSED}"))

    def _ship_log(self, path: Path) -> bool:
        if self._stop.is_set():
            return False
        stored = _read_synced(path)
        contents, num_torn = read_frames(stored)
        if contents and (refusal := self._destination.store(path.stem, contents)):
            _set_aside(path, refusal)
            return False
        if is_damaged(torn := stored[len(stored) - num_torn :]):
            _set_aside(path, f"a record after the first {len(contents)}, and what follows it, is not what was written")
            return bool(contents)
        if torn:
            log.warning(
                "log has a torn end name=%s num_records=%d num_torn_bytes=%d", path.stem, len(contents), num_torn
            )
        path.unlink()
        return bool(contents)


def _set_aside(path: Path, reason: str) -> None:
    path.rename(path.with_suffix(CORRUPT))
    log.critical("log set aside name=%s error=%s", path.stem, reason)


def _read_synced(path: Path) -> bytes:  # kept: an order that power losses depend on
    """Read a log after syncing it: a log that a power loss cuts short must not replace its own whole segment."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.read()
