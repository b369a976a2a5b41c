"""Marks OpenTelemetry spans with the current rollout, by which ``ingest`` finds their trajectory.

Add it to the program's tracer provider: ``provider.add_span_processor(RolloutSpans())``.
"""

from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from agent_layer.otel_names import ROLLOUT
from tracer.core import current


class RolloutSpans(SpanProcessor):
    """Writes the trajectory id into each span that begins inside a rollout, or whose baggage names one."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See SpanProcessor."""
        rollout = current()
        trajectory_id = rollout.trajectory_id if rollout else baggage.get_baggage(ROLLOUT, parent_context)
        if isinstance(trajectory_id, str):
            span.set_attribute(ROLLOUT, trajectory_id)
