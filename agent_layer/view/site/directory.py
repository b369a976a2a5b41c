"""A directory that is replaced as a whole: a reader finds the earlier site or the new one, never half of it."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import make_beside

MARK: Final = "export.json"
"""File that says of a directory that it is an export."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    kind: Literal["agent-layer view export"] = "agent-layer view export"
    version: str
    num_trajectories: int
    files: list[str]
    """Paths of all other files that the export wrote; nothing else is ever replaced."""


def write_mark(place: Path, version: str, num_trajectories: int) -> None:
    """Record that a directory is an export, which consists of all files that are in it now."""
    mark = Mark(version=version, num_trajectories=num_trajectories, files=sorted(_list_files(place)))
    (place / MARK).write_bytes(msgspec.json.encode(mark))


@contextmanager
def replace_directory(directory: Path) -> Generator[Path]:
    """Return a directory beside to write into; it takes the place of the other when the block ends without an error.

    Args:
        directory: it may be missing, empty, or an earlier export that holds nothing else.

    Raises: BadInputError: something else is there, or the place cannot be written to.
    """
    directory = directory.resolve()
    _check(directory)
    try:
        with make_beside(directory) as beside:
            old = beside.with_name(f"{beside.name}.old")
            try:
                yield beside
                _check(directory)
                if directory.exists():
                    directory.rename(old)
                beside.rename(directory)
            finally:
                if old.exists() and not directory.exists():
                    old.rename(directory)
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise BadInputError(
            f"export to {directory}: expected a place that can be written to, found {error.strerror or error};"
            " choose another, or make room"
        ) from error


def _check(directory: Path) -> None:
    if directory == Path.cwd() or not directory.name:
        raise BadInputError(f"export to {directory}: expected a directory that can be replaced, found the current one")
    if directory.exists() and not directory.is_dir():
        raise BadInputError(f"export to {directory}: expected a directory, found what is none; choose another name")
    found = _list_files(directory) if directory.is_dir() else set[str]()
    if strange := sorted(found - _list_own(directory)):
        raise BadInputError(
            f"export to {directory}: expected a new directory, an empty one or an earlier export, found {strange[0]!r}"
            " in it; choose another, or empty it"
        )


def _list_own(directory: Path) -> set[str]:
    """Return the files that an earlier export wrote; none where the directory is no export."""
    try:
        mark = msgspec.json.decode((directory / MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):  # missing, or a file of others has its name
        return set()
    return {MARK, *mark.files}


def _list_files(directory: Path) -> set[str]:
    """Return the paths of all that a directory holds, however deep, but folders that hold something themselves."""
    kept = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir() or not any(path.iterdir()))
    return {path.relative_to(directory).as_posix() for path in kept}
