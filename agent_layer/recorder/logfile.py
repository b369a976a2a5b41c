"""One log file: created as ``NAME.open`` under a flock, renamed to ``NAME.log`` when it is complete.

A ``.open`` file without a flock has lost its writer. The file gets its name only after its flock, because a shipper
would take it for an abandoned one in between.
"""

import fcntl
import os
import time
from pathlib import Path

from agent_layer.errors import BackPressureError

OPEN, CLOSED = ".open", ".log"
CORRUPT = ".corrupt"
"""Complete but not readable: set aside for an operator, and never settled."""


class LogFile:
    """A file that one process appends to. Not thread-safe."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self.num_records = 0
        self._created_at = time.monotonic()
        self._path = directory / name
        unlocked = directory / f"{name}.new"
        self._descriptor = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unlocked.rename(f"{self._path}{OPEN}")

    @property
    def age_seconds(self) -> float:
        """Time since the file was created for its first record."""
        return time.monotonic() - self._created_at

    def write(self, frames: bytes, num_records: int) -> None:
        """Append frames as a whole or not at all.

        Raises: BackPressureError: the disk refused them.
        """
        try:
            num_written = os.write(self._descriptor, frames)
            while num_written < len(frames):
                num_written += os.write(self._descriptor, frames[num_written:])
        except OSError as error:
            os.ftruncate(self._descriptor, self.size_bytes)
            raise BackPressureError(
                f"log {self._path}: expected to append {len(frames)} bytes, found {error.strerror!r}; make room on the"
                " disk or move AGENT_LAYER_DIR"
            ) from error
        self.size_bytes += len(frames)
        self.num_records += num_records

    def complete(self) -> None:
        """Hand the file to the shipper; nothing may be written any more."""
        Path(f"{self._path}{OPEN}").rename(f"{self._path}{CLOSED}")

    def sync(self) -> None:
        """Wait until all that was written is on disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file and release its flock."""
        os.close(self._descriptor)


def adopt(path: Path) -> bool:
    """Complete an open log if its writer is gone; return whether it was.

    This must not create the file: its writer may be about to complete it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(path.with_suffix(CLOSED))
    except (BlockingIOError, FileNotFoundError):  # its writer is alive, or has completed it meanwhile
        return False
    finally:
        os.close(descriptor)
    return True


def is_settled(directory: Path, name: str) -> bool:
    """Whether the log's records are indexed. The order matters: a log may be completed between two checks."""
    return not any((directory / f"{name}{ending}").exists() for ending in (OPEN, CLOSED, CORRUPT))


def is_set_aside(directory: Path, name: str) -> bool:
    """Whether the log could not be read."""
    return (directory / f"{name}{CORRUPT}").exists()
