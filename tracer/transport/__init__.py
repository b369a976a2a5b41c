"""How a rollout reaches the gateway, and how a process inherits one."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__, {"gateway_client": "GatewayClient connect_gateway", "inheritance": "RewardSink rollout_from_environment"}
)
