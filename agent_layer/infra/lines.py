"""Files of records, one JSON line each, to which processes append while others read.

Only what ends with a newline is a line. A writer that died, or whose disk was full, may leave the beginning of one: the
next writer cuts it off, and readers skip it.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from agent_layer.errors import BackPressureError
from agent_layer.infra.files import make_private, open_private

_Record = TypeVar("_Record", bound=msgspec.Struct)

_BLOCK = 1 << 16

log = logging.getLogger(__name__)


def append_line(path: Path, record: msgspec.Struct) -> None:
    """Append a record as a whole or not at all; a new file is for this user only.

    Raises: BackPressureError: the disk refused it.
    """
    try:
        make_private(path.parent)
        descriptor = open_private(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # or one writer would cut off what another one is writing
            _append(descriptor, msgspec.json.encode(record) + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BackPressureError(
            f"file {path}: expected to append a line, found {error.strerror!r}; make room on the disk, or move"
            " AGENT_LAYER_DIR"
        ) from error


def _append(descriptor: int, line: bytes) -> None:
    size = _cut_torn_end(descriptor)
    try:
        while line:
            line = line[os.write(descriptor, line) :]
    except OSError:
        with suppress(OSError):  # else the next writer does
            os.ftruncate(descriptor, size)
        raise


def read_lines(path: Path, kind: type[_Record]) -> list[_Record]:
    """Return the records of all complete lines, in their order; none where there is no file.

    A line that is no such record is left out, and logged once.
    """
    if not path.exists():
        return []
    return list(_records(path, kind))


def _records(path: Path, kind: type[_Record]) -> Iterator[_Record]:
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            _report_unreadable(path, number, str(error))


@cache
def _report_unreadable(path: Path, number: int, why: str) -> None:
    log.warning("line left out file=%s line=%d error=%s", path, number, why)


def _cut_torn_end(descriptor: int) -> int:
    """Cut the file behind its last newline; return its size."""
    begin = size = os.fstat(descriptor).st_size
    end = 0
    while begin and not end:
        length = min(begin, _BLOCK)
        begin -= length
        if (newline := os.pread(descriptor, length, begin).rfind(b"\n")) >= 0:
            end = begin + newline + 1
    if end < size:
        os.ftruncate(descriptor, end)
    return end
