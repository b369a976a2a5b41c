"""File locks (flock) that show the processes of one machine which others are alive: a dead process holds none."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_layer.errors import BadInputError
from agent_layer.infra.files import make_private


def share_lock(path: Path) -> int:
    """Acquire a shared lock, waiting for it. It holds until the descriptor is closed here and in forked children."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def try_lock(path: Path) -> int | None:
    """Acquire the exclusive lock; return its descriptor, or None when any process holds the lock. Creates the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


@contextmanager
def hold_lock(path: Path) -> Generator[None]:
    """Context manager: wait for the exclusive lock of a file, which it creates, and hold it during the block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_alone(path: Path, refusal: str) -> Generator[None]:
    """Context manager: no other process does the same during the block; the kernel releases the lock of a dead one.

    Args:
        path: of the lock file; its directory is created, too.
        refusal: error where another process holds the lock.

    Raises: BadInputError: that is so.
    """
    make_private(path.parent)
    if (descriptor := try_lock(path)) is None:
        raise BadInputError(refusal)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock."""
    if (descriptor := try_lock(path)) is None:
        return True
    os.close(descriptor)
    return False
