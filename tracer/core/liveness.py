"""Whether a rollout has ended, as its threads, tasks and forked children see it.

A context outlives the block that it was copied in: a thread pool, a background task or a forked child keeps it. So the
end of a rollout is a mark in memory that the process shares with the children it forks, before and after the mark.
"""

import os
import threading
from itertools import count
from mmap import mmap

import msgspec

_NUM_MARKS = 1 << 16
"""Rollouts of one process that may be open at the same time. Untouched pages of the marks take no memory."""


class LifeName(msgspec.Struct, frozen=True, kw_only=True):
    """Name of one opening of a rollout, for other processes of its family."""

    process_id: int
    number: int


class _Marks:
    """Marks of the rollouts that one process opens: each holds the highest number that ended in it."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.ended = memoryview(mmap(-1, 8 * _NUM_MARKS)).cast("Q")


class _Family:
    """Marks of this process and of those it descends from by fork, by process id."""

    lock = threading.Lock()
    marks = {os.getpid(): _Marks()}

    @classmethod
    def join(cls) -> None:
        """Begin marks of one's own in a forked child."""
        cls.lock, cls.marks = threading.Lock(), {**cls.marks, os.getpid(): _Marks()}


os.register_at_fork(after_in_child=_Family.join)


class Life:
    """Blocks of one rollout that are open.

    Args:
        name: of an opening by another process of the family; None: the first block opens the rollout.
    """

    def __init__(self, name: LifeName | None = None) -> None:
        self.name = name
        self._num_blocks = 0

    @property
    def is_over(self) -> bool:
        """Whether the last block has ended; False where none was opened, or the opener is no ancestor."""
        if self.name is None or (marks := _Family.marks.get(self.name.process_id)) is None:
            return False
        return marks.ended[self.name.number % _NUM_MARKS] >= self.name.number

    def open_block(self) -> None:
        """Count a block; the first one opens the rollout, also after an end."""
        with _Family.lock:
            process_id = os.getpid()
            if self.name is None or (self.is_over and self.name.process_id == process_id):
                self._num_blocks = 0
                self.name = LifeName(process_id=process_id, number=next(_Family.marks[process_id].numbers))
            self._num_blocks += 1

    def close_block(self) -> None:
        """End a block. The last one ends the rollout, unless another process opened it."""
        with _Family.lock:
            self._num_blocks -= 1
            if self.name is not None and self._num_blocks == 0 and self.name.process_id == os.getpid():
                _Family.marks[self.name.process_id].ended[self.name.number % _NUM_MARKS] = self.name.number
