"""Temporary directories of one process: a lock shows whether it is alive, and the next one removes what it left."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent_layer.infra.processes.locks import is_locked, share_lock

_LOCK: Final = "lock"
_MAX_PLACE_LENGTH: Final = 60
"""Letters; the whole path of a socket may have 107."""
_SHORT_PLACE: Final = "/tmp"  # directories in it are private
_NEW_SECONDS: Final = 60.0


def make_owned_directory(prefix: str) -> Path:
    """Make a directory that only this user can enter, whose path leaves room for the name of a socket."""
    place = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _MAX_PLACE_LENGTH else _SHORT_PLACE
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place))


def hold_owned_directory(directory: Path) -> int:
    """Show that a directory is in use, for as long as any process has the descriptor that this returns."""
    return share_lock(directory / _LOCK)


def is_owned_directory_held(directory: Path) -> bool:
    """Whether any process holds it."""
    return is_locked(directory / _LOCK)


def find_owned_directories(prefix: str) -> Iterator[Path]:
    """Yield the directories of this user's processes."""
    for place in {tempfile.gettempdir(), _SHORT_PLACE}:
        for directory in Path(place).glob(f"{prefix}*"):
            with suppress(OSError):  # it ends
                if directory.stat().st_uid == os.getuid() and not directory.is_symlink():
                    yield directory


def remove_stale_directories(prefix: str) -> None:
    """Remove the directories of processes that were killed."""
    for directory in find_owned_directories(prefix):
        pid = directory.name.removeprefix(prefix).partition("-")[0]
        with suppress(OSError):  # another process removes it
            is_new = time.time() - directory.stat().st_mtime < _NEW_SECONDS
            is_beginning = is_new and Path(f"/proc/{pid}").exists()  # it may not hold its lock yet
            if not is_beginning and not is_owned_directory_held(directory):
                remove_tree(directory)


def remove_tree(directory: Path) -> None:
    """Remove a directory of any depth and with any permissions; what cannot be removed stays."""
    remove = ["rm", "-rf", "--", str(directory)]
    subprocess.run(remove, check=False, stderr=subprocess.DEVNULL)
    if directory.exists():  # folders without permission for their owner
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(directory)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(remove, check=False, stderr=subprocess.DEVNULL)
