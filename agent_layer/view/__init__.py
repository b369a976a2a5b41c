"""The page over the store, and its HTTP API under ``/api/v1``: what was seen, said, judged and learned."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.addresses import announce_page as announce_page
    from agent_layer.view.addresses import find_page as find_page
    from agent_layer.view.app import build_view_app as build_view_app
    from agent_layer.view.links import Thing as Thing
    from agent_layer.view.links import link_to as link_to
    from agent_layer.view.links import make_link as make_link
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.addresses": ("announce_page", "find_page"),
            "agent_layer.view.app": ("build_view_app",),
            "agent_layer.view.links": ("Thing", "link_to", "make_link"),
        },
    )
