"""Hooks into frameworks and clients; each loads when its library does."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"install": "instrument"})
