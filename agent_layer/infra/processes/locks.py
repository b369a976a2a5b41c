"""File locks (flock) that show the processes of one machine which others are alive: a dead process holds none."""

import fcntl
import os
from pathlib import Path


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


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock."""
    if (descriptor := try_lock(path)) is None:
        return True
    os.close(descriptor)
    return False
