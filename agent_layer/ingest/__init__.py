"""Ingest of OTLP spans and of logs that other machines send."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.ingest.app import build_app as build_app
    from agent_layer.ingest.messages import (
        ImportBatch as ImportBatch,
    )
    from agent_layer.ingest.messages import (
        line_trajectory_id as line_trajectory_id,
    )
    from agent_layer.ingest.messages import (
        make_records as make_records,
    )
    from agent_layer.ingest.spans import (
        AgentRun as AgentRun,
    )
    from agent_layer.ingest.spans import (
        ModelCall as ModelCall,
    )
    from agent_layer.ingest.spans import (
        ReceivedSpan as ReceivedSpan,
    )
    from agent_layer.ingest.spans import (
        SpanMeaning as SpanMeaning,
    )
    from agent_layer.ingest.spans import (
        ToolCall as ToolCall,
    )
    from agent_layer.ingest.spans import (
        first_text as first_text,
    )
    from agent_layer.ingest.spans import (
        numbered_objects as numbered_objects,
    )
    from agent_layer.ingest.spans import (
        read_line as read_line,
    )
    from agent_layer.ingest.spans import (
        token_usage as token_usage,
    )
    from agent_layer.ingest.spans import (
        unflatten as unflatten,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.ingest.app": ("build_app",),
            "agent_layer.ingest.messages": (
                "ImportBatch",
                "line_trajectory_id",
                "make_records",
            ),
            "agent_layer.ingest.spans": (
                "AgentRun",
                "ModelCall",
                "ReceivedSpan",
                "SpanMeaning",
                "ToolCall",
                "first_text",
                "numbered_objects",
                "read_line",
                "token_usage",
                "unflatten",
            ),
        },
    )
