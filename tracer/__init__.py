"""Capture what an agent does, whatever it is written with: ``tracer.init()``, then ``with tracer.rollout(...)``.

Names load when they are first used, so that ``import tracer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer import testing
    from tracer.context import current, reward
    from tracer.decorators import agent, state, step, tool
    from tracer.handle import Rollout
    from tracer.integrations.instrument import instrument
    from tracer.propagation import extract, inject
    from tracer.rollouts import enter_rollout, rollout
    from tracer.tracing import flush, init

__all__ = [
    "Rollout",
    "agent",
    "current",
    "enter_rollout",
    "extract",
    "flush",
    "init",
    "inject",
    "instrument",
    "reward",
    "rollout",
    "state",
    "step",
    "testing",
    "tool",
]

_NAMES = {
    "context": ("current", "reward"),
    "handle": ("Rollout",),
    "decorators": ("agent", "state", "step", "tool"),
    "integrations.instrument": ("instrument",),
    "propagation": ("extract", "inject"),
    "rollouts": ("enter_rollout", "rollout"),
    "tracing": ("flush", "init"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the file that holds the name (PEP 562)."""
    if name == "testing":
        return import_module("tracer.testing")
    if name not in _HOMES:
        raise AttributeError(f"module 'tracer' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tracer.{_HOMES[name]}"), name)
    return value
