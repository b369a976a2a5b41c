"""Waits of tests, all of them: for progress, within a limit that grows with the machine's slowness.

A test that waits says for what: an event, a count, a record, a ready line. When the wait runs out, ``WaitExpired``
names what was awaited and shows the log of what did not come. It differs from every other failure: it may be the
machine's fault. So ``tests/reruns.py`` runs such a test again, alone and once. It never runs a failed assertion again.

A limit of 60 seconds means 60 seconds of a calm machine. It is stretched by a yardstick, which this process measures
when it first waits, and by the load of each core while it waits. So a wait that expires had the time that it needs.
"""

import asyncio
import hashlib
import inspect
import os
import select
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "WaitExpired",
    "communicate",
    "join",
    "read_line",
    "run",
    "scaled",
    "slowdown",
    "until",
    "wait_for_exit",
    "wait_until",
    "wait_until_ready",
    "within",
]

T = TypeVar("T")
Log = Path | Callable[[], str] | None
_LOOK_SECONDS = 0.005
_MAX_LOOK_SECONDS = 0.025
_LOOK_SHARE = 0.2
"""Of a processor, for looking at what is awaited; the rest is for what brings it."""
_CALM_SECONDS = 0.0085
"""The yardstick on two calm cores (2026-11-28)."""
_MAX_SLOWDOWN = 20.0
_MAX_LOG_LETTERS = 4000


class WaitExpired(Exception):  # noqa: N818  # an outcome of its own beside failures, not one more error
    """What a test waited for did not come in time."""


def scaled(seconds: float) -> float:
    """Return the limit of this length, as this machine needs it now: for time-outs of libraries and settings."""
    return seconds * slowdown()


def slowdown() -> float:
    """Return how many times slower than two calm cores this machine is now, at least 1."""
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(_MAX_SLOWDOWN, max(1.0, _measure_yardstick() / _CALM_SECONDS) * max(1.0, load))


@cache
def _measure_yardstick() -> float:
    """Return the least duration of several turns of the same work: what the processor does, whatever else it does."""
    turns: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"yard", b"stick", 20_000)
        turns.append(time.perf_counter() - began)
    return min(turns)


class _Limit:
    """Time of a wait; on a machine that got slower meanwhile it is extended."""

    def __init__(self, seconds: float, awaited: object, log: Log) -> None:
        self._seconds, self._awaited, self._log = seconds, awaited, log
        self._began = time.monotonic()

    def pause_seconds(self, cost_seconds: float = 0.0) -> float:
        """Length of the pause after a look: longer in a long wait, and after one that took much of a processor."""
        passed = time.monotonic() - self._began
        return max(min(_MAX_LOOK_SECONDS, max(_LOOK_SECONDS, passed / 50)), cost_seconds / _LOOK_SHARE)

    @property
    def left_seconds(self) -> float:
        """Seconds until the next look at the load is due; 0: the wait is over."""
        passed = time.monotonic() - self._began
        return max(0.0, (self._seconds if passed < self._seconds else scaled(self._seconds)) - passed)

    def expired(self) -> WaitExpired:
        awaited = self._awaited if isinstance(self._awaited, str) else _describe(self._awaited)
        passed = time.monotonic() - self._began
        return WaitExpired(
            f"waited {passed:.1f} s for {awaited}: it did not come (limit {self._seconds:g} s, this machine is"
            f" {slowdown():.1f} times slower than a calm one, load {os.getloadavg()[0]:.1f}){_read(self._log)}"
        )


def _describe(condition: object) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())  # pyright: ignore[reportArgumentType]
    except (OSError, TypeError):
        return repr(condition)


def _read(log: Log) -> str:
    if log is None:
        return ""
    try:
        text = log() if callable(log) else log.read_text(errors="replace")
    except OSError as error:
        text = repr(error)
    return f"\n--- log ---\n{text[-_MAX_LOG_LETTERS:]}"


def wait_until(condition: Callable[[], T], seconds: float = 60.0, what: str = "", log: Log = None) -> T:
    """Wait until the condition holds, and return what it returned.

    Args:
        condition: polled; whatever it raises ends the wait.
        seconds: limit on a calm machine.
        what: what is awaited, in words; by default the condition's source.
        log: shown when the wait expires: a file, or what returns a text.
    Raises: WaitExpired: it did not hold in time.
    """
    limit, used = _Limit(seconds, what or condition, log), time.thread_time()
    while not (found := condition()):
        if not limit.left_seconds:
            raise limit.expired()
        used, before = time.thread_time(), used
        time.sleep(limit.pause_seconds(used - before))
    return found


async def until(condition: Callable[[], T | Awaitable[T]], seconds: float = 60.0, what: str = "", log: Log = None) -> T:
    """Like ``wait_until`` without blocking the loop; the condition may be a coroutine function."""
    async with within(seconds, what or _describe(condition), log) as limit:
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(limit.pause_seconds())


@asynccontextmanager
async def within(seconds: float, what: str, log: Log = None) -> AsyncIterator[_Limit]:
    """Cancel the body, and raise WaitExpired, when it takes longer. What the body itself raises passes."""
    limit, loop = _Limit(seconds, what, log), asyncio.get_running_loop()

    def look() -> None:
        nonlocal timer
        if left_seconds := limit.left_seconds:
            timer = loop.call_later(left_seconds, look)
        else:
            timeout.reschedule(loop.time())

    timer = loop.call_later(seconds, look)
    timeout = asyncio.timeout(None)
    try:
        async with timeout:
            yield limit
    except TimeoutError:
        if timeout.expired():
            raise limit.expired() from None
        raise
    finally:
        timer.cancel()


def join(thread: threading.Thread, seconds: float = 60.0, what: str = "") -> None:
    """Wait for a thread's end."""
    wait_until(lambda: not thread.is_alive(), seconds, what or f"the end of thread {thread.name}")


def wait_for_exit(process: subprocess.Popen[Any], seconds: float = 60.0, log: Log = None) -> int:
    """Wait for a process's end; return its exit status."""
    wait_until(lambda: process.poll() is not None, seconds, f"the end of {_name(process.args)}", log)
    return process.returncode


def communicate(process: subprocess.Popen[Any], seconds: float = 60.0) -> tuple[Any, Any]:
    """Wait for a process's end; return what it wrote to its two pipes."""
    limit = _Limit(seconds, f"the end of {_name(process.args)}", None)
    while left_seconds := limit.left_seconds:
        try:
            return process.communicate(timeout=left_seconds)
        except subprocess.TimeoutExpired as error:
            written = error
    process.kill()
    out, err = process.communicate()
    raise WaitExpired(f"{limit.expired()}\n--- written ---\n{_tail(out)}{_tail(err)}") from written


def run(command: Sequence[object], seconds: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; like ``subprocess.run`` with texts, captured, any exit status."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(part) for part in command], **(pipes | options)) as process:
        try:
            out, err = communicate(process, seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def read_line(
    process: subprocess.Popen[Any], seconds: float = 60.0, log: Log = None, *, of_errors: bool = False
) -> Any:
    """Wait for the next line of a process's output, its ready line for one; empty when the output is closed.

    The pipe is read letter by letter, past Python's buffer, because a buffered line cannot be waited for.
    """
    stream: Any = process.stderr if of_errors else process.stdout
    limit = _Limit(seconds, f"a line of {_name(process.args)}", log)
    line, file = bytearray(), stream.fileno()
    while not line.endswith(b"\n"):
        if select.select([file], [], [], limit.left_seconds)[0]:
            if not (letter := os.read(file, 1)):
                break
            line += letter
        elif not limit.left_seconds:
            raise limit.expired()
    return line.decode() if hasattr(stream, "encoding") else bytes(line)


def wait_until_ready(
    process: subprocess.Popen[Any], is_ready: Callable[[], object], seconds: float = 60.0, log: Log = None
) -> None:
    """Wait until a server serves; one that ends before is no wait, but a failure."""

    def is_up() -> object:
        assert process.poll() is None, f"{_name(process.args)} ended with {process.returncode}{_read(log)}"
        return is_ready()

    wait_until(is_up, seconds, f"{_name(process.args)} to be ready", log)


def _name(command: Any) -> str:
    return " ".join(map(str, command))[:200] if isinstance(command, list | tuple) else str(command)


def _tail(text: Any) -> str:
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return (text or "")[-_MAX_LOG_LETTERS:]
