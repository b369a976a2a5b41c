"""Clock, ids and trace context: where records get their times and ids from.

Tests pass ids and times that can be predicted. Trace context is W3C Trace Context, the headers of OpenTelemetry.
"""

import os
import sys
import time
from collections.abc import MutableMapping
from typing import Protocol

from agent_layer.schema import TraceContext, new_id


def active_trace() -> TraceContext | None:
    """Return the context of the active OpenTelemetry span; None when no span is active."""
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is None:
        return None
    context = telemetry.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    state = context.trace_state.to_header() or None
    return TraceContext(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}", state=state)


def new_trace() -> TraceContext:
    """Return the context of the active span, else that of a new trace."""
    return active_trace() or TraceContext(trace_id=os.urandom(16).hex())


def new_span_id() -> str:
    """Mint a span id."""
    return os.urandom(8).hex()


def format_traceparent(trace_id: str, span_id: str) -> str:
    """Return the header's value, marked as sampled."""
    return f"00-{trace_id}-{span_id}-01"


def write_trace(headers: MutableMapping[str, str], trace: TraceContext, span_id: str) -> None:
    """Add the headers that make the receiver's spans children of a span."""
    headers["traceparent"] = format_traceparent(trace.trace_id, span_id)
    if trace.state:
        headers["tracestate"] = trace.state


class ClockAndIds(Protocol):
    """Source of times and ids."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def ticks(self) -> float:
        """Seconds since an arbitrary moment; monotonic."""
        ...

    def new_id(self) -> str:
        """Mint an id that sorts by its creation time."""
        ...

    def new_span_id(self) -> str:
        """Mint an OpenTelemetry span id."""
        ...

    def new_trace(self) -> TraceContext:
        """Return the trace context of what begins here."""
        ...


class _SystemClockAndIds:
    """The machine's clock and randomness."""

    now = staticmethod(time.time)
    ticks = staticmethod(time.perf_counter)
    new_id = staticmethod(new_id)
    new_span_id = staticmethod(new_span_id)
    new_trace = staticmethod(new_trace)


SYSTEM: ClockAndIds = _SystemClockAndIds()
