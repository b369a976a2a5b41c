"""This file holds the guard: a process that ends what a worker started when the worker dies without a word.

The worker writes ``+GROUP`` when it starts a process group and ``-GROUP`` when that has ended. When its end of the
pipe closes, which the kernel does for a process that is killed, the guard ends the groups that are left.
"""

import os
import signal
import subprocess
import sys
from typing import IO

__all__ = ["Guard"]


class Guard:
    """The worker's side of the guard. It runs from the start: next to no time lies between a start and ``watch``."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]  # needs nothing that is installed, so it starts at once
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)

    def watch(self, group: int) -> None:
        """End this process group when this process dies."""
        self._pipe.write(f"+{group}\n".encode())

    def forget(self, group: int) -> None:
        """The group has ended."""
        self._pipe.write(f"-{group}\n".encode())

    def close(self) -> None:
        """End the guard, and with it every group that is still watched."""
        self._pipe.close()
        self._process.wait()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin


def guard(lines: IO[str]) -> None:
    """Keep the list until there are no more lines, then end what is left."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    guard(sys.stdin)
