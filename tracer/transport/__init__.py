"""How a rollout reaches the gateway, and how a process inherits one."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from tracer.transport.gateway_client import GatewayClient as GatewayClient
    from tracer.transport.gateway_client import connect_gateway as connect_gateway
    from tracer.transport.inheritance import rollout_from_environment as rollout_from_environment
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tracer.transport.gateway_client": (
                "GatewayClient",
                "connect_gateway",
            ),
            "tracer.transport.inheritance": ("rollout_from_environment",),
        },
    )
