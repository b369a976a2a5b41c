"""This file holds the headers by which a gateway knows whose call a request is."""

from tracer.calls import Call
from tracer.traceparent import write_trace

__all__ = ["CALL_HEADER", "call_headers"]

CALL_HEADER = "x-agent-layer-call"


def call_headers(call: Call) -> dict[str, str]:
    """Name the call, its rollout, and its span."""
    rollout = call.scope.rollout
    headers = {CALL_HEADER: call.call_id, "x-agent-layer-rollout": rollout.trajectory_id}
    write_trace(headers, rollout.trace, call.span_id)
    return headers
