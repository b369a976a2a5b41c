"""Capture what an agent does, whatever it is written with: ``tracer.init()``, then ``with tracer.rollout(...)``.

Names load when they are first used, so that ``import tracer`` costs next to nothing.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from tracer import testing
    from tracer.core import Rollout, agent, current, reward, state, step, tool
    from tracer.integrations import instrument
    from tracer.propagation import extract, inject
    from tracer.propagation import variables_of as variables_of
    from tracer.rollouts import enter_rollout, rollout
    from tracer.session import Tracing as Tracing
    from tracer.session import flush, init
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tracer": ("testing",),
            "tracer.core": (
                "Rollout",
                "agent",
                "current",
                "reward",
                "state",
                "step",
                "tool",
            ),
            "tracer.integrations": ("instrument",),
            "tracer.propagation": (
                "extract",
                "inject",
                "variables_of",
            ),
            "tracer.rollouts": (
                "enter_rollout",
                "rollout",
            ),
            "tracer.session": (
                "Tracing",
                "flush",
                "init",
            ),
        },
    )

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
