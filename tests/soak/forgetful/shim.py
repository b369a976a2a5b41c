"""Control of the faults that ``faults.c`` causes inside processes."""

import errno
import mmap
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

__all__ = ["Control", "Shim", "find_compiler"]

HERE = Path(__file__).parent
_CONTROL = struct.Struct("=dddii")
_DURABLE = struct.Struct("=QQ")
DESCRIPTORS, WRITES, SYNCS = 1, 2, 4
REFUSALS = {
    "EMFILE": (errno.EMFILE, DESCRIPTORS),
    "ENOSPC": (errno.ENOSPC, WRITES),
    "EIO": (errno.EIO, WRITES | SYNCS),
}
"""By name: the error, and which calls have it."""


def find_compiler() -> str | None:
    """Return the path of a C compiler; None: there is none, and no fault can be caused."""
    return shutil.which("gcc") or shutil.which("cc")


class Control:
    """What one process, and those that it starts, suffer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock_seconds = 0.0
        self._map = _make_map(path, _CONTROL.size)

    def refuse(self, name: str, seconds: float, chance: float) -> None:
        """Refuse calls from now on, for this many seconds, each with this chance."""
        code, calls = REFUSALS[name]
        self._map[:] = _CONTROL.pack(self._clock_seconds, time.monotonic() + seconds, chance, code, calls)

    def move_clock(self, seconds: float) -> None:
        """Let the wall clock differ by this from now on."""
        self._clock_seconds = seconds
        self._map[:] = _CONTROL.pack(seconds, 0.0, 0.0, 0, 0)


class Shim:
    """The compiled library, and what it writes down."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "faults.so"
        compiler = find_compiler()
        assert compiler, "no C compiler, so no fault can be caused"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(HERE / "faults.c"), "-ldl"]
        subprocess.run(command, check=True)
        self._durable = _make_map(directory / "durable", _DURABLE.size)

    def environment(self, control: Control) -> dict[str, str]:
        """Variables of a process that suffers what a control says."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAULTS_CONTROL": str(control.path),
            "FAULTS_DURABLE": str(self._directory / "durable"),
        }

    def read_durable(self, log: Path) -> int:
        """Return the number of bytes of an append-only file that are on disk for certain."""
        inode, size = _DURABLE.unpack(self._durable[:])
        return min(size, log.stat().st_size) if inode == log.stat().st_ino else 0


def _make_map(path: Path, size: int) -> mmap.mmap:
    path.write_bytes(bytes(size))
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, size)
    finally:
        os.close(file)
