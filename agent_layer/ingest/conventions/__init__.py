"""Semantic conventions by which spans describe model calls."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.ingest.conventions.recognition import SESSIONS as SESSIONS
    from agent_layer.ingest.conventions.recognition import interpret_span as interpret_span
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.ingest.conventions.recognition": (
                "SESSIONS",
                "interpret_span",
            ),
        },
    )
