"""This file holds how threads inherit the rollout of the code that starts them; Python 3.11 gives them none."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from tracer.context import is_carried

__all__ = ["carry_context"]

P = ParamSpec("P")
T = TypeVar("T")

_start = threading.Thread.start
_submit = ThreadPoolExecutor.submit


def carry_context() -> None:
    """Let threads and thread pools run what is started inside a rollout in that rollout."""
    threading.Thread.start = _start_inside
    ThreadPoolExecutor.submit = _submit_inside


@wraps(_start)
def _start_inside(self: threading.Thread) -> None:
    if is_carried():
        self.run = partial(copy_context().run, self.run)
    _start(self)


@wraps(_submit)
def _submit_inside(
    self: ThreadPoolExecutor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> Future[T]:
    if not is_carried():
        return _submit(self, function, *args, **kwargs)
    # the pool may start a thread for this, which must not keep the rollout for whatever it runs later
    return Context().run(_submit, self, partial(copy_context().run, function), *args, **kwargs)
