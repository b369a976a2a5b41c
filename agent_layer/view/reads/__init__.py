"""What each route reads from the store, and how it becomes an answer."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.reads.asked import Asked as Asked
    from agent_layer.view.reads.asked import query_parameters as query_parameters
    from agent_layer.view.reads.fleet import show_fleet_state as show_fleet_state
    from agent_layer.view.reads.lists import ABOVE_ZERO as ABOVE_ZERO
    from agent_layer.view.reads.lists import FAILED as FAILED
    from agent_layer.view.reads.lists import facet as facet
    from agent_layer.view.reads.lists import natural_key as natural_key
    from agent_layer.view.reads.routes import PREFIX as PREFIX
    from agent_layer.view.reads.routes import ROUTES as ROUTES
    from agent_layer.view.reads.routes import Route as Route
    from agent_layer.view.reads.runs import make_progress as make_progress
    from agent_layer.view.reads.source import Source as Source
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.reads.asked": ("Asked", "query_parameters"),
            "agent_layer.view.reads.fleet": ("show_fleet_state",),
            "agent_layer.view.reads.lists": ("ABOVE_ZERO", "FAILED", "facet", "natural_key"),
            "agent_layer.view.reads.routes": ("PREFIX", "ROUTES", "Route"),
            "agent_layer.view.reads.runs": ("make_progress",),
            "agent_layer.view.reads.source": ("Source",),
        },
    )
