"""Which engine answers a call: pool, routing, health, external models, preemption."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.engines.models import ExternalModel as ExternalModel
    from agent_layer.gateway.engines.models import read_model_names as read_model_names
    from agent_layer.gateway.engines.pool import EnginePool as EnginePool
    from agent_layer.gateway.engines.pool import EngineWatcher as EngineWatcher
    from agent_layer.gateway.engines.pool import PolicyRegistrar as PolicyRegistrar
    from agent_layer.gateway.engines.preemption import PreemptedError as PreemptedError
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.engines.models": (
                "ExternalModel",
                "read_model_names",
            ),
            "agent_layer.gateway.engines.pool": (
                "EngineWatcher",
                "EnginePool",
                "PolicyRegistrar",
            ),
            "agent_layer.gateway.engines.preemption": ("PreemptedError",),
        },
    )
