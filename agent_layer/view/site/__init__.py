"""A static copy of the page over chosen trajectories: it opens from a file, without a server."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.site.bundle import bundle_modules as bundle_modules
    from agent_layer.view.site.directory import replace_directory as replace_directory
    from agent_layer.view.site.writer import Selection as Selection
    from agent_layer.view.site.writer import SiteReport as SiteReport
    from agent_layer.view.site.writer import write_site as write_site
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.site.bundle": ("bundle_modules",),
            "agent_layer.view.site.directory": ("replace_directory",),
            "agent_layer.view.site.writer": ("Selection", "SiteReport", "write_site"),
        },
    )
