"""Commands that read and judge trajectories: ``query``, ``show``, ``summary``, ``reward``, ``export``."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.cli.query.files import export_group as export_group
    from agent_layer.cli.query.files import import_messages as import_messages
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.cli.query.files": (
                "export_group",
                "import_messages",
            ),
        },
    )
