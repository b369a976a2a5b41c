"""This file holds the headers by which a gateway knows whose call a request is."""

from agent_layer.schema.headers import AGENT_HEADER, CALL_HEADER, ROLLOUT_HEADER
from tracer.calls import Call
from tracer.traceparent import write_trace

__all__ = ["call_headers"]


def call_headers(call: Call) -> dict[str, str]:
    """Name the call, its rollout, its span, and the agent that speaks, where a header can say that name."""
    rollout, agent = call.scope.rollout, call.scope.agent
    headers = {CALL_HEADER: call.call_id, ROLLOUT_HEADER: rollout.trajectory_id}
    if agent and agent.isascii() and agent.isprintable():
        headers[AGENT_HEADER] = agent
    write_trace(headers, rollout.trace, call.span_id)
    return headers
