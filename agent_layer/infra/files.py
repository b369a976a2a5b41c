"""Files and directories that only this user can read, and files that appear whole under their name or not at all.

Records hold what agents read and wrote, hence private; others read files while they are replaced.
"""

import fcntl
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

_FILE, _DIRECTORY = 0o600, 0o700
_FOR_OTHERS = 0o666
"""Less what the user's umask takes."""


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


def replace_file(path: Path, content: bytes | Iterable[bytes], *, private: bool = True, sync: bool = False) -> None:
    """Write a file; a reader finds the earlier content or the new one. Its directory exists.

    Args:
        path: it may be missing.
        content: as a whole or in pieces, which may be read from the earlier file.
        private: for this user only; else as the user's umask has it.
        sync: wait until the content is on disk before it takes the name, or a power loss may leave an empty file.

    Raises: OSError: it cannot be written; the earlier file is still there, and nothing beside it.
    """
    with write_beside(path, private=private, sync=sync) as unfinished, unfinished.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextmanager
def write_beside(path: Path, unfinished: Path | None = None, *, private: bool, sync: bool) -> Generator[Path]:
    """Return a path to write to, which takes the name when the block ends without an error; see ``replace_file``.

    Where ``unfinished`` is not given, the path to write to has a name of its own, which begins with a dot. During the
    block ``is_being_written`` is true of it.
    """
    unfinished = unfinished or path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE if private else _FOR_OTHERS)
        try:
            with suppress(OSError):  # a file system without locks: then its age alone tells
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield unfinished
            if sync:
                sync_path(unfinished)
            unfinished.replace(path)
        finally:
            os.close(descriptor)
    finally:
        unfinished.unlink(missing_ok=True)


def is_being_written(unfinished: Path) -> bool:
    """Whether the process that writes this file beside another runs: a fact that no clock moves.

    Raises: FileNotFoundError: it is finished, or was removed.
    """
    descriptor = os.open(unfinished, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    else:
        return False
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
