"""One log file: created as ``NAME.open`` under a flock, renamed to ``NAME.log`` when it is complete.

A ``.open`` file without a flock has lost its writer. The file gets its name only after its flock, because a shipper
would take it for an abandoned one in between. A writer that cannot rename a complete file only has to close it.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from agent_layer.errors import BackPressureError

OPEN, CLOSED = ".open", ".log"
CORRUPT = ".corrupt"
"""Complete but not readable: set aside for an operator, and never settled."""


class LogFile:
    """A file that one process appends to. Not thread-safe.

    Raises: OSError: it cannot be created; nothing of it is left.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        """Without what the disk took of refused frames."""
        self.num_records = 0
        self._is_torn = False
        """Whether such bytes may stand at the end."""
        self._created_at = time.monotonic()
        self._path = directory / name
        unlocked = directory / f"{name}.new"
        self._descriptor = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            unlocked.rename(f"{self._path}{OPEN}")
        except OSError:
            with suppress(OSError):
                unlocked.unlink()
            self.close()
            raise

    @property
    def age_seconds(self) -> float:
        """Time since the file was created for its first record."""
        return time.monotonic() - self._created_at

    def write(self, frames: bytes, num_records: int) -> None:
        """Append frames as a whole or not at all.

        Raises: BackPressureError: the disk refused them.
        """
        try:
            self._mend()
            self._is_torn = True
            num_written = os.write(self._descriptor, frames)
            while num_written < len(frames):
                num_written += os.write(self._descriptor, frames[num_written:])
        except OSError as error:
            with suppress(OSError):  # else before the next frames, which must not stand behind half a one
                self._mend()
            raise BackPressureError(
                f"log {self._path}: expected to append {len(frames)} bytes, found {error.strerror!r}; make room on the"
                " disk or move AGENT_LAYER_DIR"
            ) from error
        self._is_torn = False
        self.size_bytes += len(frames)
        self.num_records += num_records

    def complete(self) -> None:
        """Hand the file to the shipper, at the latest when it is closed; nothing may be written any more.

        Raises: OSError: bytes of refused frames stand at its end, and cannot be removed now.
        """
        self._mend()
        with suppress(OSError):
            Path(f"{self._path}{OPEN}").rename(f"{self._path}{CLOSED}")

    def _mend(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self.size_bytes)
            self._is_torn = False

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
    """Whether the log's records are known to be indexed. A log may be completed between two checks, hence their order.

    False where the directory cannot be read.
    """
    try:
        return not any((directory / f"{name}{ending}").exists() for ending in (OPEN, CLOSED, CORRUPT))
    except OSError:
        return False


def is_set_aside(directory: Path, name: str) -> bool:
    """Whether the log is known to be unreadable."""
    try:
        return (directory / f"{name}{CORRUPT}").exists()
    except OSError:
        return False
