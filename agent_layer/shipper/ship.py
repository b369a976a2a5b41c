"""Shipping: closed logs are brought to their destination, then deleted.

In this order: fsync of the log, commit at the destination, deletion. If a shipper dies in between, its successor brings
the same log under the same name, so that nothing is lost and nothing is stored twice.
"""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from agent_layer.recorder import CLOSED, CORRUPT, OPEN, adopt, is_damaged, read_frames
from agent_layer.shipper.destination import Destination

_NAME = "[0-9a-z]" * 26 + "-*"
"""Pattern of log names; other files of the directory are not logs."""

log = logging.getLogger(__name__)


class Shipper:
    """Ships one log directory to one destination; once ``stop`` is set, it starts no further log."""

    def __init__(self, directory: Path, destination: Destination, stop: threading.Event) -> None:
        self._directory = directory
        self._destination = destination
        self._stop = stop
        self._threads = ThreadPoolExecutor(destination.num_at_once, thread_name_prefix="ship")

    def ship_pending(self) -> int:
        """Ship all that is ready; return the number of shipped logs and segments.

        Raises: UnreachableError: a server failed to do its part; unshipped logs remain.
        """
        in_transit = [self._threads.submit(self._ship_log, path) for path in self._find_logs()]
        wait(in_transit)  # also when one fails: no log may be in transit twice
        num_shipped = sum(shipped.result() for shipped in in_transit)
        return num_shipped + self._destination.ship_decisions()

    def close(self) -> None:
        """Wait for logs in transit, and close the destination."""
        self._threads.shutdown()
        self._destination.close()

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


def _read_synced(path: Path) -> bytes:
    """Read a log after syncing it: a log that a power loss cuts short must not replace its own whole segment."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.read()
