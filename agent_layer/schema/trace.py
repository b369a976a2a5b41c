"""Trace context: position in a distributed trace, as OpenTelemetry and W3C Trace Context define it."""

import re
from collections.abc import Mapping

from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Record

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


class TraceContext(Record, frozen=True, kw_only=True):
    """Position in a trace."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str | None = None
    """16 hexadecimal digits: the active span; None when the trace begins here."""
    state: str | None = None
    """``tracestate``: data of vendors, passed on unchanged."""


def parse_trace(headers: Mapping[str, str]) -> TraceContext | None:
    """Read ``traceparent`` and ``tracestate``; None when they are missing or invalid."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip().lower())
    if match is None:
        return None
    return TraceContext(trace_id=match[1], span_id=match[2], state=headers.get("tracestate") or None)


def derive_span_id(name: str) -> str:
    """Return the span id of a named thing, such as an attempt."""
    return content_hash(name.encode())[:16]


def derive_trace_id(name: str) -> str:
    """Return the trace id of a named thing that belongs to no other trace."""
    return content_hash(name.encode())
