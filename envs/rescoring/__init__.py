"""Rescoring: a scorer judges stored trajectories again."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"cli": "rescore_rows"})
