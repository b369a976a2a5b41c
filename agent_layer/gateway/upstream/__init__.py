"""HTTP client towards the engines."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.upstream.client import Reply as Reply
    from agent_layer.gateway.upstream.client import Upstream as Upstream
    from agent_layer.gateway.upstream.client import was_reached as was_reached
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.upstream.client": (
                "Reply",
                "Upstream",
                "was_reached",
            ),
        },
    )
