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

import pytest

from ....queues import Queue
from ....waiting import communicate, wait_for_exit, wait_until

COMMAND = [sys.executable, "-m", "agent_layer.cli"]


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
        communicate(process)


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

    def reads(self, text):
        """Wait until the text was written, anywhere."""
        wait_until(lambda: text in self._read(), what=f"{text!r} at the terminal", log=lambda: self.written)

    def types(self, text):
        os.write(self._mine, text.encode())

    def ends(self):
        """Exit status; what was written meanwhile is read, else it could not end."""
        wait_until(lambda: (self._read(), self.process.poll())[1] is not None, what="its end", log=self._read)
        self._read()
        return self.process.returncode

    def _read(self):
        """All that was written so far."""
        try:
            while select.select([self._mine], [], [], 0)[0] and (more := os.read(self._mine, 1 << 16)):
                self.written += self._decoder.decode(more)
        except OSError:  # the terminal's other end is closed
            pass
        return self.written

    def close(self):
        self.process.kill()
        wait_for_exit(self.process)
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
