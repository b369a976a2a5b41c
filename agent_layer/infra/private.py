"""Files and directories that only this user can read: records hold what agents read and wrote."""

import os
from pathlib import Path

_FILE, _DIRECTORY = 0o600, 0o700


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user only. Existing ones do not change.

    Raises: OSError: it cannot be made.
    """
    if not directory.is_dir():
        if not directory.parent.exists():
            make_private(directory.parent)
        directory.mkdir(mode=_DIRECTORY, exist_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file, and create it for this user only; the ``opener`` of ``open``."""
    return os.open(path, flags, _FILE)
