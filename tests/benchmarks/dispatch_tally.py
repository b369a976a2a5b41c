"""Tally of the workers: each process has a counter and a list of delays in files.

It knows nothing of any queue and needs nothing but Python, so that all contenders' workers report in the same way and
at the same cost. Times are those of the machine's monotonic clock, which all processes share.
"""

import os
import struct
import time
from array import array
from mmap import mmap
from pathlib import Path

__all__ = ["Tally", "count_in", "done", "num_workers_in", "waits_in"]

_COUNT = struct.Struct("<Q")


class Tally:
    """What one process has done."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"{os.getpid()}.count"
        begun = path.with_suffix(".begun")
        begun.write_bytes(_COUNT.pack(0))
        with begun.open("r+b") as file:
            self._mapped = mmap(file.fileno(), _COUNT.size)
        begun.rename(path)  # atomic, so that a reader never sees an unfinished file
        self._num = 0
        self._waits = path.with_suffix(".waits")

    def count(self, num: int = 1) -> None:
        """Count ``num`` more tasks as done."""
        self._num += num
        _COUNT.pack_into(self._mapped, 0, self._num)

    def note_wait(self, seconds: float) -> None:
        """Append the delay from the submission of a task to its start."""
        with self._waits.open("ab") as file:
            file.write(array("d", [seconds]).tobytes())


_tallies: dict[int, Tally] = {}
"""By process: a forked child has its own."""


def done(sent_at: float) -> None:
    """Be the whole of a task: count it, and note how long it was on its way unless it was sent at 0."""
    tally = _tallies.get(os.getpid())
    if tally is None:
        tally = _tallies[os.getpid()] = Tally(Path(os.environ["BENCH_TALLY"]))
    if sent_at:
        tally.note_wait(time.monotonic() - sent_at)
    tally.count()


def count_in(directory: Path) -> int:
    """Tasks that all processes have done."""
    return sum(_COUNT.unpack(path.read_bytes())[0] for path in directory.glob("*.count"))


def num_workers_in(directory: Path) -> int:
    """Processes that have done any."""
    return len(list(directory.glob("*.count")))


def waits_in(directory: Path) -> list[float]:
    """Seconds that tasks were on their way."""
    waits = array("d")
    for path in directory.glob("*.waits"):
        waits.frombytes(path.read_bytes())
    return list(waits)
