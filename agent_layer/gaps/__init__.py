"""Gaps between log-probabilities of engines and trainers: the first token that differs, and the likely cause."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"bisection": "BisectOptions Finding bisect_gap"})
