"""Server-sent events: one watcher of the store for all pages, and a bounded stream for each of them."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.events.streams import EventStreams as EventStreams
else:
    __getattr__ = lazy_exports(__name__, {"agent_layer.view.events.streams": ("EventStreams",)})
