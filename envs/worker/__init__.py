"""The worker: claims rollouts, runs attempts, scores and seals them, reports."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"service": "WorkOptions serve_worker", "worker": "wait_within"})
