"""Quota of a log directory: the bytes of unshipped logs above which writers wait."""

import os
import time
from contextlib import suppress
from pathlib import Path

from agent_layer.errors import BackPressureError
from agent_layer.recorder.logfile import CLOSED, OPEN

_MEASURE_SECONDS = 1.0
"""How long a measurement holds; what this process writes meanwhile is added to it."""
_POLL_SECONDS = 0.05


class Quota:
    """Unshipped bytes in one directory, against a limit."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._measured_at = float("-inf")

    def add(self, num_bytes: int) -> None:
        """Count what was written since the last measurement."""
        self._num_bytes += num_bytes

    def has_room(self) -> bool:
        """Whether less than the limit is used. Measured once a second, and on each call while it is full.

        Where it cannot be measured, what was known and what was written since stand for it.
        """
        is_full = self._num_bytes >= self._limit_bytes
        if is_full or time.monotonic() - self._measured_at > _MEASURE_SECONDS:
            with suppress(OSError):
                self._num_bytes = _measure(self._directory)
                self._measured_at = time.monotonic()
        return self._num_bytes < self._limit_bytes

    def await_room(self, limit_seconds: float) -> None:
        """Wait until there is room.

        Raises: BackPressureError: the directory stayed full.
        """
        deadline = time.monotonic() + limit_seconds
        while not self.has_room():
            if time.monotonic() > deadline:
                raise BackPressureError(
                    f"log directory {self._directory}: expected fewer than {self._limit_bytes} unshipped bytes within"
                    f" {limit_seconds:g} s, found {self._num_bytes}; shipper.log there tells why shipping stalls"
                )
            time.sleep(_POLL_SECONDS)


def _measure(directory: Path) -> int:
    """Return the bytes of logs, without the shipper's own output, which is never shipped."""
    total = 0
    if not directory.exists():
        return total
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("shipper.") or not entry.name.endswith((OPEN, CLOSED)):
                continue
            try:
                total += entry.stat().st_size
            except FileNotFoundError:  # shipped since it was listed
                continue
    return total
