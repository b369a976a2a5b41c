"""What each route reads from the store, and how it becomes an answer."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.reads.archive import find_cooled as find_cooled
    from agent_layer.view.reads.archive import source_for as source_for
    from agent_layer.view.reads.fleet import show_fleet_state as show_fleet_state
    from agent_layer.view.reads.groups import show_group as show_group
    from agent_layer.view.reads.images import IMAGES as IMAGES
    from agent_layer.view.reads.images import Image as Image
    from agent_layer.view.reads.images import image_names as image_names
    from agent_layer.view.reads.images import read_image as read_image
    from agent_layer.view.reads.lists import ABOVE_ZERO as ABOVE_ZERO
    from agent_layer.view.reads.lists import FAILED as FAILED
    from agent_layer.view.reads.lists import facet_lines as facet_lines
    from agent_layer.view.reads.lists import natural_key as natural_key
    from agent_layer.view.reads.params import RequestParams as RequestParams
    from agent_layer.view.reads.params import query_parameters as query_parameters
    from agent_layer.view.reads.routes import PREFIX as PREFIX
    from agent_layer.view.reads.routes import ROUTES as ROUTES
    from agent_layer.view.reads.routes import Route as Route
    from agent_layer.view.reads.runs import info as info
    from agent_layer.view.reads.runs import list_runs as list_runs
    from agent_layer.view.reads.runs import list_updates as list_updates
    from agent_layer.view.reads.runs import make_progress as make_progress
    from agent_layer.view.reads.runs import show_run as show_run
    from agent_layer.view.reads.source import Cooled as Cooled
    from agent_layer.view.reads.source import Source as Source
    from agent_layer.view.reads.trajectories import show_trajectory as show_trajectory
    from agent_layer.view.reads.updates import read_whole as read_whole
    from agent_layer.view.reads.updates import show_update as show_update
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.reads.params": ("RequestParams", "query_parameters"),
            "agent_layer.view.reads.archive": ("find_cooled", "source_for"),
            "agent_layer.view.reads.fleet": ("show_fleet_state",),
            "agent_layer.view.reads.groups": ("show_group",),
            "agent_layer.view.reads.images": ("IMAGES", "Image", "image_names", "read_image"),
            "agent_layer.view.reads.lists": ("ABOVE_ZERO", "FAILED", "facet_lines", "natural_key"),
            "agent_layer.view.reads.routes": ("PREFIX", "ROUTES", "Route"),
            "agent_layer.view.reads.runs": ("info", "list_runs", "list_updates", "make_progress", "show_run"),
            "agent_layer.view.reads.source": ("Cooled", "Source"),
            "agent_layer.view.reads.trajectories": ("show_trajectory",),
            "agent_layer.view.reads.updates": ("read_whole", "show_update"),
        },
    )
