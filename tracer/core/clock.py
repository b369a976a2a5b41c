"""This file holds what records are stamped with: times and ids. Tests give them others, which can be foretold.

This file holds the ids of OpenTelemetry and how they travel between processes (W3C Trace Context).
"""

import os
import sys
import time
from collections.abc import MutableMapping
from typing import Protocol

from agent_layer.schema import new_id
from agent_layer.schema.wire import TraceContext


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


class ClockAndIds(Protocol):
    """Gives times and ids."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def ticks(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def new_id(self) -> str:
        """Mint an id that sorts by the time of its making."""
        ...

    def new_span_id(self) -> str:
        """Mint a span id of OpenTelemetry's."""
        ...

    def new_trace(self) -> TraceContext:
        """Give the place in OpenTelemetry's terms of what begins here."""
        ...


class _SystemClockAndIds:
    """The machine's clock and randomness."""

    now = staticmethod(time.time)
    ticks = staticmethod(time.perf_counter)
    new_id = staticmethod(new_id)
    new_span_id = staticmethod(new_span_id)
    new_trace = staticmethod(new_trace)


SYSTEM: ClockAndIds = _SystemClockAndIds()
