"""Semantic conventions by which spans describe model calls."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.ingest.conventions.recognition import SESSIONS as SESSIONS
    from agent_layer.ingest.conventions.recognition import see as see
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.ingest.conventions.recognition": (
                "SESSIONS",
                "see",
            ),
        },
    )
