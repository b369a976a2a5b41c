"""Placement of worker processes: on this machine or on Ray."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"placer": "Where Workforce run_workers", "ray": "join_ray"})
