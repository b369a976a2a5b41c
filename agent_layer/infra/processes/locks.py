"""This file holds file locks (flock), which tell the processes of one machine who is alive: a dead one has none."""

import fcntl
import os
from pathlib import Path


def share_lock(path: Path) -> int:
    """Wait for a shared lock. It holds until the descriptor is closed, in forked children as well as here."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def try_lock(path: Path) -> int | None:
    """Take the exclusive lock and give its descriptor; None when anyone holds the lock. The file is made if absent."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether anyone holds the lock."""
    if (descriptor := try_lock(path)) is None:
        return True
    os.close(descriptor)
    return False
