"""How trained weights reach veRL's vLLM servers, and which of them serve a version.

Without a GPU veRL and vLLM import the transfer, and the receiver, by their paths.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.weights.digest import hash_weights as hash_weights
    from trainer_adapter.cluster.weights.fleet import EngineFleet as EngineFleet
    from trainer_adapter.cluster.weights.fleet import name_location as name_location
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.cluster.weights.digest": ("hash_weights",),
            "trainer_adapter.cluster.weights.fleet": (
                "EngineFleet",
                "name_location",
            ),
        },
    )
