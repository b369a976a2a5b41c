"""The LLM endpoint in front of the engines: records each call, exactly."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.serving import listen as listen
    from agent_layer.gateway.serving import serve_gateway as serve_gateway
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.serving": (
                "listen",
                "serve_gateway",
            ),
        },
    )
