"""Costs: what attempts took of engines, judges and sandboxes, and what that is worth by the prices of a setting."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "prices": "Price",
        "quantities": "CallCount count_calls",
    },
)
