"""Files of records, one JSON line each, to which processes append while others read.

Only what ends with a newline is a line. A writer that died, or whose disk was full, may leave the beginning of one: the
next writer cuts it off, and readers skip it.
"""

import fcntl
import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

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


class LineReader(Generic[_Record]):
    """Reads a file on from where its last reading ended: a look at a long file costs no more than its new lines.

    A file that another has replaced is read from its beginning.
    """

    def __init__(self, path: Path, kind: type[_Record]) -> None:
        self.records: list[_Record] = []
        """All that were read of the present file."""
        self._path, self._kind = path, kind
        self._inode: int | None = None
        self._offset = self._num_lines = 0

    def read_on(self) -> list[_Record]:
        """Return the records of the lines that were completed since the last call, in their order.

        There are none where there is no file. A line that is no such record is left out, and logged once.
        """
        content = self._read_content()
        new: list[_Record] = []
        for line in content.split(b"\n")[:-1]:
            self._num_lines += 1
            self._offset += len(line) + 1
            try:
                new.append(msgspec.json.decode(line, type=self._kind))
            except msgspec.DecodeError as error:
                _report_unreadable(self._path, self._num_lines, str(error))
        self.records += new
        return new

    def _read_content(self) -> bytes:
        """Return what follows the last line that was read."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._begin(None)
            return b""
        with file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._inode or state.st_size < self._offset:
                self._begin(state.st_ino)
            file.seek(self._offset)
            return file.read()

    def _begin(self, inode: int | None) -> None:
        self._inode, self._offset, self._num_lines, self.records = inode, 0, 0, []


def read_lines(path: Path, kind: type[_Record]) -> list[_Record]:
    """Return the records of all complete lines; see ``LineReader``."""
    return LineReader(path, kind).read_on()


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
