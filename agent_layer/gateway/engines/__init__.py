"""Which engine answers a call: pool, routing, health, external models, preemption."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.engines.models import Provider as Provider
    from agent_layer.gateway.engines.models import read_model_names as read_model_names
    from agent_layer.gateway.engines.pool import EngineWatch as EngineWatch
    from agent_layer.gateway.engines.pool import Places as Places
    from agent_layer.gateway.engines.pool import PolicyBook as PolicyBook
    from agent_layer.gateway.engines.preemption import CutError as CutError
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.engines.models": (
                "Provider",
                "read_model_names",
            ),
            "agent_layer.gateway.engines.pool": (
                "EngineWatch",
                "Places",
                "PolicyBook",
            ),
            "agent_layer.gateway.engines.preemption": ("CutError",),
        },
    )
