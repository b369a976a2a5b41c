"""Files of records, one JSON line each, to which processes append while others read."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from agent_layer.infra.private import make_private, open_private

_Record = TypeVar("_Record", bound=msgspec.Struct)


def append_line(path: Path, record: msgspec.Struct) -> None:
    """Append a record, in one write; a new file is for this user only."""
    make_private(path.parent)
    descriptor = open_private(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, msgspec.json.encode(record) + b"\n")
    finally:
        os.close(descriptor)


def read_lines(path: Path, kind: type[_Record]) -> list[_Record]:
    """Return the records of all complete lines, in their order; none where there is no file."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().split(b"\n")[:-1]]
