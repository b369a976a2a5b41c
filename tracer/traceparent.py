"""This file holds the ids of OpenTelemetry and how they travel between processes (W3C Trace Context)."""

import os
import re
import sys

__all__ = ["format_traceparent", "new_span_id", "new_trace_id", "parse_traceparent"]

_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def new_trace_id() -> str:
    """Give the trace id of the OpenTelemetry span that is active here, else a new one."""
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is not None:
        context = telemetry.get_current_span().get_span_context()
        if context.is_valid:
            return format(context.trace_id, "032x")
    return os.urandom(16).hex()


def new_span_id() -> str:
    """Mint a span id."""
    return os.urandom(8).hex()


def format_traceparent(trace_id: str, span_id: str) -> str:
    """Give the header's value, marked as sampled."""
    return f"00-{trace_id}-{span_id}-01"


def parse_traceparent(value: str) -> tuple[str, str] | None:
    """Give (trace id, span id); None when the value is none that may be believed."""
    match = _FORM.fullmatch(value.strip().lower())
    if match is None or set(match[1]) == {"0"} or set(match[2]) == {"0"} or value.startswith("ff"):
        return None
    return match[1], match[2]
