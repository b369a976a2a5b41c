"""This file holds the ids of OpenTelemetry and how they travel between processes (W3C Trace Context)."""

import os
import sys
from collections.abc import MutableMapping

from agent_layer.schema.trace import TraceContext

__all__ = ["active_trace", "format_traceparent", "new_span_id", "new_trace", "write_trace"]


def active_trace() -> TraceContext | None:
    """Give the place of the OpenTelemetry span that is active here; None when there is none."""
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is None:
        return None
    context = telemetry.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    state = context.trace_state.to_header() or None
    return TraceContext(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}", state=state)


def new_trace() -> TraceContext:
    """Give the place of what begins here: in the active span, else in a new trace."""
    return active_trace() or TraceContext(trace_id=os.urandom(16).hex())


def new_span_id() -> str:
    """Mint a span id."""
    return os.urandom(8).hex()


def format_traceparent(trace_id: str, span_id: str) -> str:
    """Give the header's value, marked as sampled."""
    return f"00-{trace_id}-{span_id}-01"


def write_trace(headers: MutableMapping[str, str], trace: TraceContext, span_id: str) -> None:
    """Add the headers by which others go on in the trace, below a span."""
    headers["traceparent"] = format_traceparent(trace.trace_id, span_id)
    if trace.state:
        headers["tracestate"] = trace.state
