"""This file holds what marks OpenTelemetry's spans as those of the current rollout; ``ingest`` then knows their
home.

A program adds it to its own provider of spans: ``provider.add_span_processor(RolloutSpans())``.
"""

from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from agent_layer.otel_names import ROLLOUT
from tracer.core import current


class RolloutSpans(SpanProcessor):
    """Writes the trajectory into each span that begins inside a rollout, or that baggage says belongs to one."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See SpanProcessor."""
        rollout = current()
        told = rollout.trajectory_id if rollout else baggage.get_baggage(ROLLOUT, parent_context)
        if isinstance(told, str):
            span.set_attribute(ROLLOUT, told)
