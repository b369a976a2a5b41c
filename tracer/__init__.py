"""Capture what an agent does, whatever it is written with: ``tracer.init()``, then ``with tracer.rollout(...)``.

Names load when they are first used, so that ``import tracer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.context import Rollout, current, enter_rollout

__all__ = ["Rollout", "current", "enter_rollout"]

_HOMES = {"Rollout": "context", "current": "context", "enter_rollout": "context"}


def __getattr__(name: str) -> object:
    """Import the file that holds the name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tracer' has no attribute {name!r}")
    return getattr(import_module(f"tracer.{_HOMES[name]}"), name)
