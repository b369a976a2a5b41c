"""Ingest of OTLP spans and of logs that other machines send."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.ingest.app import build_app as build_app
    from agent_layer.ingest.messages import (
        Batch as Batch,
    )
    from agent_layer.ingest.messages import (
        records_of as records_of,
    )
    from agent_layer.ingest.messages import (
        trajectory_id_of_line as trajectory_id_of_line,
    )
    from agent_layer.ingest.spans import (
        AgentRun as AgentRun,
    )
    from agent_layer.ingest.spans import (
        ModelCall as ModelCall,
    )
    from agent_layer.ingest.spans import (
        Seen as Seen,
    )
    from agent_layer.ingest.spans import (
        SpanReceived as SpanReceived,
    )
    from agent_layer.ingest.spans import (
        ToolCall as ToolCall,
    )
    from agent_layer.ingest.spans import (
        in_order as in_order,
    )
    from agent_layer.ingest.spans import (
        json_of as json_of,
    )
    from agent_layer.ingest.spans import (
        nested as nested,
    )
    from agent_layer.ingest.spans import (
        read_line as read_line,
    )
    from agent_layer.ingest.spans import (
        text_of as text_of,
    )
    from agent_layer.ingest.spans import (
        usage_of as usage_of,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.ingest.app": ("build_app",),
            "agent_layer.ingest.messages": (
                "Batch",
                "records_of",
                "trajectory_id_of_line",
            ),
            "agent_layer.ingest.spans": (
                "AgentRun",
                "ModelCall",
                "Seen",
                "SpanReceived",
                "ToolCall",
                "in_order",
                "json_of",
                "nested",
                "read_line",
                "text_of",
                "usage_of",
            ),
        },
    )
