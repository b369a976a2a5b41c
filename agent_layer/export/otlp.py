"""OTLP/HTTP sender of traces, based on OpenTelemetry's own exporter."""

from collections.abc import Sequence
from typing import Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from agent_layer import __version__
from agent_layer.errors import UnreachableError
from agent_layer.export.spans import ExportedSpan, ExportedTrace

_PATH = "/v1/traces"
_MAX_SPANS = 512
"""Spans per request; backends refuse bodies of more than a few megabytes."""
_SCOPE = InstrumentationScope("agent_layer", __version__)


class Exporter(Protocol):
    """The interface of OpenTelemetry's span exporters."""

    def export(self, spans: Sequence[ReadableSpan], /) -> SpanExportResult:
        """Send spans; retry errors that may pass."""
        ...


class OtlpSender:
    """Sends traces to one endpoint.

    Args:
        endpoint: base address, such as http://localhost:4318, or with /v1/traces.
        service: ``service.name`` of the spans.
        timeout_seconds: limit for one batch of spans.
    """

    def __init__(self, endpoint: str, service: str, timeout_seconds: float) -> None:
        self._url = endpoint if endpoint.rstrip("/").endswith(_PATH) else endpoint.rstrip("/") + _PATH
        self._exporter: Exporter = OTLPSpanExporter(endpoint=self._url, timeout=timeout_seconds)
        self._resource = Resource.create({"service.name": service})

    def send(self, traces: Sequence[ExportedTrace]) -> int:
        """Send whole traces; return the number of spans.

        Raises: UnreachableError: the endpoint did not accept them; sending again is safe.
        """
        spans = [span for trace in traces for span in readable_spans(trace, self._resource)]
        for begin in range(0, len(spans), _MAX_SPANS):
            if self._exporter.export(spans[begin : begin + _MAX_SPANS]) is not SpanExportResult.SUCCESS:
                raise UnreachableError(
                    f"OTLP endpoint {self._url}: expected it to take {len(spans)} spans, but it did not; nothing of the"
                    " store is lost: correct AGENT_LAYER_OTLP_ENDPOINT or start it, then export again"
                )
        return len(spans)


def readable_spans(trace: ExportedTrace, resource: Resource) -> list[ReadableSpan]:
    """Return the spans of a trace in the form that OpenTelemetry's exporters accept."""
    return [_readable(trace, span, resource) for span in trace.spans]


def _readable(trace: ExportedTrace, span: ExportedSpan, resource: Resource) -> ReadableSpan:
    status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
    return ReadableSpan(
        span.name,
        _span_context(trace, span.span_id),
        parent=_span_context(trace, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(event.name, event.attributes, _nanoseconds(event.at)) for event in span.events],
        kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
        status=status,
        start_time=_nanoseconds(span.began_at),
        end_time=_nanoseconds(span.ended_at),
        instrumentation_scope=_SCOPE,
    )


def _span_context(trace: ExportedTrace, span_id: str) -> SpanContext:
    state = TraceState.from_header([trace.state]) if trace.state else None
    return SpanContext(
        int(trace.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1), trace_state=state
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
