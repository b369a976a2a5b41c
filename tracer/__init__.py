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
    from tracer.propagation import rollout_variables as rollout_variables
    from tracer.rollouts import enter_rollout, rollout
    from tracer.session import Session as Session
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
                "rollout_variables",
            ),
            "tracer.rollouts": (
                "enter_rollout",
                "rollout",
            ),
            "tracer.session": (
                "Session",
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
