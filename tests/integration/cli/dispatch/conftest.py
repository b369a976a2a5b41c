"""Fixtures of the dispatcher's commands: commands as processes, with and without a terminal."""

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from ....queues import Queue

COMMAND = [sys.executable, "-m", "agent_layer.cli"]
PATIENCE_SECONDS = 90
"""For a command to begin and to end, also on a machine that is busy with much else."""


@pytest.fixture
def queue(redis, keys, settings):
    return Queue(redis, keys, settings)


@pytest.fixture
def environment(settings):
    return os.environ | settings.environment()


@pytest.fixture
def start(environment, tmp_path):
    """``start("groups", "--watch")``: a command whose output goes to no terminal."""
    started = []

    def begin(*arguments: str, **changes: str) -> subprocess.Popen:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=environment | changes, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)


class Screen:
    """A command at a terminal of its own."""

    def __init__(self, arguments, environment, columns=100, lines=30):
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], env=environment | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def reads(self, text, seconds=PATIENCE_SECONDS):
        """Wait until the text was written, anywhere."""
        deadline = time.monotonic() + seconds
        while text not in self.written:
            assert time.monotonic() < deadline, self.written
            if select.select([self._mine], [], [], 0.1)[0]:
                self.written += self._decoder.decode(os.read(self._mine, 1 << 16))
        return True

    def types(self, text):
        os.write(self._mine, text.encode())

    def ends(self):
        """Exit status; what was written meanwhile is read, else it could not end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.written
            if select.select([self._mine], [], [], 0.05)[0]:
                self._read_end()
        self._read_end()
        return self.process.returncode

    def _read_end(self):
        try:
            while select.select([self._mine], [], [], 0)[0] and (more := os.read(self._mine, 1 << 16)):
                self.written += self._decoder.decode(more)
        except OSError:  # the terminal's other end is closed
            return

    def close(self):
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self._mine)


@pytest.fixture
def at_terminal(environment):
    """``at_terminal("groups", "--watch")``: a command at a terminal."""
    screens = []

    def begin(*arguments, **size):
        screens.append(Screen(arguments, environment, **size))
        return screens[-1]

    yield begin
    for screen in screens:
        screen.close()
