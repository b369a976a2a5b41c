"""Installs the hooks of clients and frameworks as soon as the program imports them.

Also makes threads inherit the rollout of the code that starts them, which Python 3.11 does not do.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from agent_layer.errors import BadInputError
from tracer.core import is_context_propagated
from tracer.integrations.patching import after_import

P = ParamSpec("P")
T = TypeVar("T")

_start = threading.Thread.start
_submit = ThreadPoolExecutor.submit


def propagate_context_to_threads() -> None:
    """Patch threads and thread pools, so that work started inside a rollout runs in that rollout."""
    threading.Thread.start = _start_inside
    ThreadPoolExecutor.submit = _submit_inside


@wraps(_start)
def _start_inside(self: threading.Thread) -> None:
    if is_context_propagated():
        self.run = partial(copy_context().run, self.run)
    _start(self)


@wraps(_submit)
def _submit_inside(
    self: ThreadPoolExecutor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> Future[T]:
    if not is_context_propagated():
        return _submit(self, function, *args, **kwargs)
    # the pool may start a thread for this, which must not keep the rollout for its later work
    return Context().run(_submit, self, partial(copy_context().run, function), *args, **kwargs)


_WATCHED = {
    "openai": ("openai", "tracer.integrations.openai"),
    "anthropic": ("anthropic", "tracer.integrations.anthropic"),
    "google": ("google.genai", "tracer.integrations.google_genai"),
    "litellm": ("litellm", "tracer.integrations.litellm"),
    "langgraph": ("langchain_core.tracers.context", "tracer.integrations.langgraph"),
}
_INSTRUMENTED: set[str] = set()


def instrument(*names: str) -> None:
    """Trace these clients and frameworks from their import on; a second call changes nothing.

    Args:
        names: of 'openai', 'anthropic', 'google' (google-genai), 'litellm' and 'langgraph' (LangChain included);
            none: all. Threads inherit their rollout always.

    Raises: BadInputError: no integration has this name.
    """
    propagate_context_to_threads()
    for name in names or _WATCHED:
        if name not in _WATCHED:
            raise BadInputError(f"instrument {name!r}: expected one of {', '.join(_WATCHED)}; leave it out")
        if name not in _INSTRUMENTED:
            _INSTRUMENTED.add(name)
            watched, integration = _WATCHED[name]
            after_import(watched, partial(import_module, integration))
