"""This file holds the headers by which a gateway knows whose call a request is."""

from tracer.calls import Call
from tracer.traceparent import format_traceparent

__all__ = ["CALL_HEADER", "call_headers"]

CALL_HEADER = "x-agent-layer-call"


def call_headers(call: Call) -> dict[str, str]:
    """Name the call, its rollout, and its span."""
    rollout = call.scope.rollout
    return {
        CALL_HEADER: call.call_id,
        "x-agent-layer-rollout": rollout.trajectory_id,
        "traceparent": format_traceparent(rollout.trace_id, call.span_id),
    }
