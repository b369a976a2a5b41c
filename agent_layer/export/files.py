"""This file holds how a file of an export appears: whole, under its name, or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_layer.errors import BadInputError

UNFINISHED = ".unfinished-"
"""What such files begin with; readers of datasets pass over names with a dot."""


@contextmanager
def replace_file(path: Path) -> Generator[Path]:
    """Return a path to write to; what was written takes the file's place when the block ends well.

    Raises: BadInputError: the place cannot be written to.
    """
    if (path.exists() and not path.is_file()) or not path.name:  # a device or a directory is nothing to be replaced
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
