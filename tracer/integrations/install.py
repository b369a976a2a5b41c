"""This file holds which clients and frameworks are traced, and when: as soon as the program imports them."""

from functools import partial
from importlib import import_module

from agent_layer.errors import BadInputError
from tracer.integrations.imports import after_import
from tracer.integrations.threads import carry_context

__all__ = ["instrument"]

_WATCHED = {
    "openai": ("openai", "tracer.integrations.openai"),
    "anthropic": ("anthropic", "tracer.integrations.anthropic"),
    "litellm": ("litellm", "tracer.integrations.litellm"),
    "langgraph": ("langchain_core.tracers.context", "tracer.integrations.langgraph"),
}
_DONE: set[str] = set()


def instrument(*names: str) -> None:
    """Trace these clients and frameworks from the moment the program imports them; saying it again changes nothing.

    Args:
        names: of 'openai', 'anthropic', 'litellm' and 'langgraph' (LangChain included); none: all. Threads inherit
            their rollout always.

    Raises: BadInputError: nothing of this name can be traced.
    """
    carry_context()
    for name in names or _WATCHED:
        if name not in _WATCHED:
            raise BadInputError(f"instrument {name!r}: expected one of {', '.join(_WATCHED)}; leave it out")
        if name not in _DONE:
            _DONE.add(name)
            watched, integration = _WATCHED[name]
            after_import(watched, partial(import_module, integration))
