"""The page over the store, and its HTTP API under ``/api/v1``: what was seen, said, judged and learned."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.app import build_view_app as build_view_app
else:
    __getattr__ = lazy_exports(__name__, {"agent_layer.view.app": ("build_view_app",)})
