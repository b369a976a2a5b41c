"""Files and directories that only this user can read, and files that appear whole under their name or not at all.

Records hold what agents read and wrote, hence private; others read files while they are replaced.
"""

import fcntl
import glob
import os
import re
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from agent_layer.schema import new_id

_FILE, _DIRECTORY = 0o600, 0o700
_FOR_OTHERS = 0o666
"""Less what the user's umask takes."""
_BESIDE = re.compile(r"[0-9a-z]{26}(\.old)?")
"""End of the name of a directory beside another: an id; ``.old`` is what was replaced."""


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


@contextmanager
def make_beside(directory: Path) -> Generator[Path]:
    """Make ``.NAME.ID`` beside a directory, to be filled and moved to its name; otherwise it is removed at the end.

    What killed processes left beside the directory is removed first: a lock shows which ones are being filled.

    Raises: OSError: it cannot be made.
    """
    for left in directory.parent.glob(f".{glob.escape(directory.name)}.*"):
        suffix = _BESIDE.fullmatch(left.name.removeprefix(f".{directory.name}."))
        if suffix and (directory.exists() or not suffix[1]):
            _remove_unheld(left)
    while True:
        beside = directory.with_name(f".{directory.name}.{new_id()}")
        beside.mkdir(parents=True)
        descriptor = os.open(beside, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks, where nothing is ever removed
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if beside.exists():
            break
        os.close(descriptor)  # another process took it for one that was left
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        os.close(descriptor)


def _remove_unheld(left: Path) -> None:  # kept: one that another process holds or removes ends nothing
    with suppress(OSError):  # another process removes it, or holds it
        descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(descriptor)


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
