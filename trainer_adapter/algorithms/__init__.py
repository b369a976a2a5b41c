"""What an update computes from the rewards: options, the defaults of published algorithms, and what both amount to.

A new algorithm is one file in ``papers`` and one line in its registry.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "options": "AlgorithmConfig Credit DistillConfig Options OverlongPenalty",
        "plug_ins": "ADVANTAGES CREDITS LOSSES VERL_LOSSES find_part",
        "resolve": "ResolvedAlgorithm resolve_algorithm",
        "schedule": "Schedule",
    },
)
