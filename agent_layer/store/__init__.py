"""The store: Redis index over segments in S3 or a directory. ``open_store()`` opens it for reading."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.cli_filters import make_takes_filters as make_takes_filters
    from agent_layer.store.cli_filters import parse_which as parse_which
    from agent_layer.store.cli_filters import takes_filters as takes_filters
    from agent_layer.store.consumers import GroupDelivery
    from agent_layer.store.index import Filters, TrajectoryRow
    from agent_layer.store.page import Page
    from agent_layer.store.store import Store, open_store
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.cli_filters": (
                "parse_which",
                "takes_filters",
                "make_takes_filters",
            ),
            "agent_layer.store.consumers": ("GroupDelivery",),
            "agent_layer.store.index": (
                "Filters",
                "TrajectoryRow",
            ),
            "agent_layer.store.page": ("Page",),
            "agent_layer.store.store": (
                "Store",
                "open_store",
            ),
        },
    )

__all__ = ["Filters", "GroupDelivery", "Page", "Store", "TrajectoryRow", "open_store"]
