"""Code repair: generated repositories with bugs, by seed and level."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agents": "independent near_miss reference",
        "environment": "RepairEnvironment",
        "repair": "Repair",
        "scorer": "RepairScorer",
    },
)
