"""This file holds one log file: born as ``NAME.open`` under a flock, renamed to ``NAME.log`` when it is complete.

A ``.open`` file whose flock is free belongs to nobody any more. It gets its name only after its flock, because a
shipper would take it for an abandoned one in between.
"""

import fcntl
import os
import time
from pathlib import Path

from agent_layer.errors import BackPressureError

OPEN, CLOSED = ".open", ".log"
CORRUPT = ".corrupt"
"""Whole, but not readable: kept aside for a person, and never settled."""


class LogFile:
    """A file that one process appends to. Not thread-safe."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self.num_records = 0
        self._born_at = time.monotonic()
        self._path = directory / name
        born = directory / f"{name}.new"
        self._descriptor = os.open(born, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        born.rename(f"{self._path}{OPEN}")

    @property
    def age_seconds(self) -> float:
        """Time since the file was born, which its first record brought about."""
        return time.monotonic() - self._born_at

    def write(self, frames: bytes, num_records: int) -> None:
        """Append frames as a whole or not at all.

        Raises: BackPressureError: the disk did not take them.
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
        """Let go of the file."""
        os.close(self._descriptor)


def adopt(path: Path) -> bool:
    """Complete an open log whose writer is gone; says whether it was.

    The file must not be made here: its writer may be about to complete it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(path.with_suffix(CLOSED))
    except (BlockingIOError, FileNotFoundError):  # its writer lives, or has completed it meanwhile
        return False
    finally:
        os.close(descriptor)
    return True


def is_settled(directory: Path, name: str) -> bool:
    """Whether the log's records are indexed. The order matters: a log may be completed between the looks."""
    return not any((directory / f"{name}{ending}").exists() for ending in (OPEN, CLOSED, CORRUPT))


def is_set_aside(directory: Path, name: str) -> bool:
    """Whether the log could not be read."""
    return (directory / f"{name}{CORRUPT}").exists()
