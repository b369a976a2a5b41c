"""This file holds how signals end a worker: the first lets what runs go on for a time, the second gives it back."""

import asyncio
import signal
import sys
from typing import TextIO

from envs.worker import Worker

__all__ = ["Leaving"]

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Leaving:
    """Ends one worker by signals; after the second, the next one ends the process as it would any other.

    Args:
        worker: whom they end.
        drain_seconds: how long what runs may go on after the first.
        told: where a person who pressed Ctrl-C reads what is waited for.
    """

    def __init__(self, worker: Worker, drain_seconds: float, told: TextIO = sys.stderr) -> None:
        self._worker = worker
        self._drain_seconds = drain_seconds
        self._told = told
        self._is_draining = False

    def listen(self) -> None:
        """Hear signals from now on, in this loop's thread."""
        loop = asyncio.get_running_loop()
        for number in _ENDING_SIGNALS:
            loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: signal.Signals) -> None:
        if self._is_draining:
            self._worker.stop()
            for one in _ENDING_SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(one)
            return
        self._is_draining = True
        self._worker.drain(self._drain_seconds)
        if number == signal.SIGINT:
            self._tell()

    def _tell(self) -> None:
        num_running = self._worker.num_running
        if num_running:
            rollouts = f"{num_running} rollout{'' if num_running == 1 else 's'}"
            said = f"waiting for {rollouts} to end, at most {self._drain_seconds:g} s; Ctrl-C again gives up sooner"
        else:
            said = "nothing runs; ending as soon as everything is stored"
        over_what_was_typed = "\r" if self._told.isatty() else ""
        self._told.write(f"{over_what_was_typed}agent-layer: {said}\n")
        self._told.flush()
