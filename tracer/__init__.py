"""Capture what an agent does, whatever it is written with: ``tracer.init()``, then ``with tracer.rollout(...)``.

Names load when they are first used, so that ``import tracer`` costs next to nothing.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "core": "Rollout agent current reward state step tool",
        "integrations": "instrument",
        "propagation": "extract inject",
        "rollouts": "enter_rollout rollout",
        "session": "flush init",
        "testing": "",
    },
    {"credentials": "clear_secrets", "propagation": "enter_environment", "session": "Session"},
)
