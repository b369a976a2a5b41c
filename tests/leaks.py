"""What is still open when a loop closes or a test ends: a failure of that test, not of a later one.

asyncio cancels a task that is pending then in silence, so what it was to do is lost sometimes. A listener or connection
that is open then warns when it is collected, perhaps in another test. An exception that no code retrieves is logged at
most. An HTTPError that something keeps, such as another exception, holds an answer that warns if its socket is
collected first. A fixture in ``tests/conftest.py`` fails the test for each of them.
"""

import asyncio
import asyncio.runners
import logging
import time
import urllib.error
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["take_leaks", "watch_loops"]

_ROOT = Path(__file__).parents[1]
_PACKAGES = tuple(f"{_ROOT / name}/" for name in ("agent_layer", "tracer", "envs", "trainer_adapter"))
_leaks: list[str] = []
_refusals = weakref.WeakSet[urllib.error.HTTPError]()


def take_leaks() -> list[str]:
    """Return what leaked since the last call, in words."""
    taken = list(_leaks)
    _leaks.clear()
    for _ in range(50):  # another thread may be about to close one
        if not any(_is_open(error) for error in list(_refusals)):
            break
        time.sleep(0.02)
    for error in list(_refusals):
        if _is_open(error):
            taken.append(f"not closed: {error} of {error.url}")
            error.close()
    return taken


def _is_open(error: urllib.error.HTTPError) -> bool:
    response = error.fp
    return hasattr(response, "isclosed") and not response.isclosed()


def watch_loops() -> None:
    """Note leaks from now on, in this process."""
    urllib.error.HTTPError.__init__ = _remembering(urllib.error.HTTPError.__init__)
    asyncio.runners._cancel_all_tasks = _noting(asyncio.runners._cancel_all_tasks, _list_tasks)
    asyncio.SelectorEventLoop.close = _noting(asyncio.SelectorEventLoop.close, _list_open)
    logging.getLogger("asyncio").addHandler(_Errors())


def _remembering(begin: Callable[..., None]) -> Callable[..., None]:
    def remembering(error: urllib.error.HTTPError, *arguments: Any) -> None:
        begin(error, *arguments)
        _refusals.add(error)

    return remembering


def _noting(close: Callable[[Any], None], find: Callable[[Any], Iterator[str]]) -> Callable[[Any], None]:
    def noting(loop: Any) -> None:
        if not loop.is_closed():
            _leaks.extend(f"open when its loop closed: {one}" for one in find(loop))
        close(loop)

    return noting


def _list_tasks(loop: Any) -> Iterator[str]:
    """Yield pending tasks whose code is ours; a library's are its own affair."""
    for task in asyncio.all_tasks(loop):
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and code.co_filename.startswith(_PACKAGES):
            yield repr(task)


def _list_open(loop: Any) -> Iterator[str]:
    yield from _list_tasks(loop)
    for key in list((loop._selector.get_map() or {}).values()):
        if key.fileobj is not loop._ssock and key.fd != loop._ssock.fileno():
            yield f"{key.fileobj} {key.data}"


class _Errors(logging.Handler):
    """What asyncio reports of forgotten tasks when they are collected."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and (text := record.getMessage()).startswith("Task"):
            _leaks.append(text)
