"""This file holds where in a distributed trace something began, as OpenTelemetry and W3C Trace Context name it."""

import re
from collections.abc import Mapping

from agent_layer.schema import Record, content_hash

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


class TraceContext(Record, frozen=True, kw_only=True):
    """The place in a trace to which what begins here belongs."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str | None = None
    """16 hexadecimal digits: the span that was active; None where the trace begins here."""
    state: str | None = None
    """``tracestate``: what vendors said of the trace, handed on as it came."""


def parse_trace(headers: Mapping[str, str]) -> TraceContext | None:
    """Read ``traceparent`` and ``tracestate``; None when there is nothing that may be believed."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip().lower())
    if match is None:
        return None
    return TraceContext(trace_id=match[1], span_id=match[2], state=headers.get("tracestate") or None)


def derive_span_id(name: str) -> str:
    """Give the id of the span that stands for something with a name, such as an attempt."""
    return content_hash(name.encode())[:16]


def derive_trace_id(name: str) -> str:
    """Give the id of the trace of something with a name, where nobody gave it another."""
    return content_hash(name.encode())
