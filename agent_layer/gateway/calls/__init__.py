"""One model call, from the request to the recorded answer."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.calls.disconnects import DisconnectWatcher as DisconnectWatcher
    from agent_layer.gateway.calls.pipeline import Calls as Calls
    from agent_layer.gateway.calls.requests import BODY_BOUNDS as BODY_BOUNDS
    from agent_layer.gateway.calls.requests import body_size as body_size
    from agent_layer.gateway.calls.requests import in_background as in_background
    from agent_layer.gateway.calls.requests import read_body as read_body
    from agent_layer.gateway.calls.requests import read_text as read_text
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.calls.disconnects": ("DisconnectWatcher",),
            "agent_layer.gateway.calls.pipeline": ("Calls",),
            "agent_layer.gateway.calls.requests": (
                "BODY_BOUNDS",
                "body_size",
                "in_background",
                "read_body",
                "read_text",
            ),
        },
    )
