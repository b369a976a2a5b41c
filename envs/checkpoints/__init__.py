"""Checkpoints of attempts, so that an attempt resumes on another worker."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {"graphs": "check_graph run_graph", "remote": "RemoteCheckpointer", "store": "CheckpointStore LeaseCheckpointer"},
)
