"""Ctrl-C while modules load, or while Python ends: there is nothing to clean up, so the process ends at once.

A KeyboardInterrupt there would come out of whatever is being imported, as a traceback that no reader needs.
"""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

EXIT_STOPPED = 130


def end_at_interrupt() -> None:
    """From now on, end with status 130 at SIGINT, without a word; a process that ignores SIGINT goes on to do so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_STOPPED)


@contextmanager
def ending_at_interrupt() -> Generator[None]:
    """Do so during the block, in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    end_at_interrupt()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
