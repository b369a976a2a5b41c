"""Atomic output files: an export appears whole under its name, or not at all."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_layer.errors import BadInputError
from agent_layer.infra import write_beside

UNFINISHED = ".unfinished-"
"""Prefix of unfinished files; dataset readers skip names that begin with a dot."""


@contextmanager
def write_export(path: Path) -> Generator[Path]:
    """Return a path to write to; it replaces the file when the block ends without an error.

    Raises: BadInputError: the path is not writable.
    """
    if (path.exists() and not path.is_file()) or not path.name:  # never replace a device or a directory
        raise BadInputError(
            f"export to {str(path)!r}: expected the name of a file, found what is none; choose another, '-' is standard"
            " output where a command says so"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_beside(path, path.with_name(f"{UNFINISHED}{path.name}"), private=False, sync=True) as unfinished:
            yield unfinished
    except OSError as error:
        raise BadInputError(
            f"export to {path}: expected a place that can be written to, found {error.strerror or error};"
            " choose another, or make room"
        ) from error
