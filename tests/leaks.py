"""Tasks that our code began and never awaited: each is a failure of the test during which its loop closes.

A task that is still pending when its loop closes is cancelled by asyncio in silence, so what it was to do is lost
sometimes. An exception that no code retrieves is logged at most. A fixture in ``tests/conftest.py`` asks for both.
"""

import asyncio
import asyncio.runners
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["take_leaks", "watch_tasks"]

_ROOT = Path(__file__).parents[1]
_PACKAGES = tuple(f"{_ROOT / name}/" for name in ("agent_layer", "tracer", "envs", "trainer_adapter"))
_leaks: list[str] = []


def take_leaks() -> list[str]:
    """Return what leaked since the last call, in words."""
    taken = list(_leaks)
    _leaks.clear()
    return taken


def watch_tasks() -> None:
    """Take note of leaks from now on, in this process."""
    asyncio.runners._cancel_all_tasks = _noting(asyncio.runners._cancel_all_tasks)
    asyncio.BaseEventLoop.close = _noting(asyncio.BaseEventLoop.close)
    logging.getLogger("asyncio").addHandler(_Errors())


def _noting(close: Callable[[Any], None]) -> Callable[[Any], None]:
    def noting(loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            _leaks.extend(f"pending when its loop closed: {task}" for task in asyncio.all_tasks(loop) if _is_ours(task))
        close(loop)

    return noting


def _is_ours(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_PACKAGES)


class _Errors(logging.Handler):
    """What asyncio reports of forgotten tasks when they are collected."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and (text := record.getMessage()).startswith("Task"):
            _leaks.append(text)
