"""Atomic output files: an export appears whole under its name, or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_layer.errors import BadInputError

UNFINISHED = ".unfinished-"
"""Prefix of unfinished files; dataset readers skip names that begin with a dot."""


@contextmanager
def replace_file(path: Path) -> Generator[Path]:
    """Return a path to write to; it replaces the file when the block ends without an error.

    Raises: BadInputError: the path is not writable.
    """
    if (path.exists() and not path.is_file()) or not path.name:  # never replace a device or a directory
        raise BadInputError(
            f"export to {str(path)!r}: expected the name of a file, found what is none; choose another, '-' is standard"
            " output where a command says so"
        )
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise BadInputError(
            f"export to {path}: expected a place that can be written to, found {error.strerror or error};"
            " choose another, or make room"
        ) from error
