"""Stored trajectories as training data: what may be used, rows to imitate, to prefer and to train, and their card."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"rows": "SCHEMAS"})
