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
_NUM_LOGS = 1024
"""As in faults.c."""
DESCRIPTORS, WRITES, SYNCS = 1, 2, 4
REFUSALS = {
    "EMFILE": (errno.EMFILE, DESCRIPTORS),
    "ENOSPC": (errno.ENOSPC, WRITES),
    "EIO": (errno.EIO, WRITES | SYNCS),
    "EIO of syncs": (errno.EIO, SYNCS),
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

    def end_refusals(self) -> None:
        self.move_clock(self._clock_seconds)

    def move_clock(self, seconds: float) -> None:
        """Let the wall clock differ by this from now on."""
        self._clock_seconds = seconds
        self._map[:] = _CONTROL.pack(seconds, 0.0, 0.0, 0, 0)


class Shim:
    """The compiled library, and what it writes down."""

    def __init__(self, directory: Path) -> None:
        library = directory / "faults.so"
        compiler = find_compiler()
        assert compiler, "no C compiler, so no fault can be caused"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "faults.c"), "-ldl"]
        subprocess.run(command, check=True)
        self._environment = {"LD_PRELOAD": str(library), "FAULTS_DURABLE": str(directory / "durable")}
        self._durable = _make_map(directory / "durable", _NUM_LOGS * _DURABLE.size)

    def environment(self, control: Control) -> dict[str, str]:
        """Variables of a process that suffers what a control says."""
        return {**self._environment, "FAULTS_CONTROL": str(control.path)}

    def sync(self, log: Path) -> None:
        """Sync an append-only file, as a server does."""
        subprocess.run(["sync", str(log)], env=os.environ | self._environment, check=True)

    def read_durable(self, log: Path) -> int:
        """Return the number of bytes of an append-only file that are on disk for certain."""
        state = log.stat()
        sizes = dict(_DURABLE.iter_unpack(self._durable[:]))
        return min(sizes.get(_identify(log, state.st_ino), 0), state.st_size)


def _identify(log: Path, inode: int) -> int:
    """Return what ``identify`` of faults.c returns."""
    id_ = inode
    for byte in log.name.encode():
        id_ = (id_ ^ byte) * 1099511628211 % 2**64
    return id_


def _make_map(path: Path, size: int) -> mmap.mmap:
    path.write_bytes(bytes(size))
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, size)
    finally:
        os.close(file)
