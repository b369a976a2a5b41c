"""A directory that is replaced as a whole: a reader finds the earlier site or the new one, never half of it."""

import shutil
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import new_id

MARK: Final = "export.json"
"""File that says of a directory that it is an export."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    kind: Literal["agent-layer view export"] = "agent-layer view export"
    version: str
    num_trajectories: int


@contextmanager
def replace_directory(directory: Path, names: Collection[str]) -> Generator[Path]:
    """Return a directory beside to write into; it takes the place of the other when the block ends without an error.

    Args:
        directory: it may be missing, empty, or an earlier export that holds nothing else.
        names: what an export holds.

    Raises: BadInputError: something else is there, or the place cannot be written to.
    """
    directory = directory.resolve()
    _check(directory, names)
    beside = directory.with_name(f".{directory.name}.{new_id()}")
    old = beside.with_name(f"{beside.name}.old")
    try:
        beside.mkdir(parents=True)
        try:
            yield beside
            _check(directory, names)
            if directory.exists():
                directory.rename(old)
            beside.rename(directory)
        finally:
            if old.exists() and not directory.exists():
                old.rename(directory)
            shutil.rmtree(beside, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise BadInputError(
            f"export to {directory}: expected a place that can be written to, found {error.strerror or error};"
            " choose another, or make room"
        ) from error


def _check(directory: Path, names: Collection[str]) -> None:
    if directory == Path.cwd() or not directory.name:
        raise BadInputError(f"export to {directory}: expected a directory that can be replaced, found the current one")
    if directory.exists() and not directory.is_dir():
        raise BadInputError(f"export to {directory}: expected a directory, found what is none; choose another name")
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else set[str]()
    strange = sorted(found.difference(names)) if _is_export(directory) else sorted(found)
    if strange:
        raise BadInputError(
            f"export to {directory}: expected a new directory, an empty one or an earlier export, found {strange[0]!r}"
            " in it; choose another, or empty it"
        )


def _is_export(directory: Path) -> bool:
    try:
        msgspec.json.decode((directory / MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):  # missing, or a file of others has its name
        return False
    return True
