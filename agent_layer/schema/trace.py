"""This file holds where in a distributed trace something began, as OpenTelemetry and W3C Trace Context name it."""

from agent_layer.schema.record import Record

__all__ = ["TraceContext"]


class TraceContext(Record, frozen=True, kw_only=True):
    """The place in a trace to which what begins here belongs."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str | None = None
    """16 hexadecimal digits: the span that was active; None where the trace begins here."""
    state: str | None = None
    """``tracestate``: what vendors said of the trace, handed on as it came."""
