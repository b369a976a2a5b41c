"""The loop that lets a model act in an environment: one episode per attempt."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"episode": "play", "policy": "Policy"})
