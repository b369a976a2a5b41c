"""This file holds the reading of OTLP requests in protobuf, and the answers in the encoding of the question."""

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as SpanStatus

from agent_layer.errors import BadInputError
from agent_layer.ingest.spans import SpanEvent, SpanReceived
from agent_layer.schema.record import JsonObject

__all__ = ["answer_protobuf", "decode_protobuf", "refuse_protobuf"]


def decode_protobuf(body: bytes) -> list[SpanReceived]:
    """Read the spans of a request.

    Raises: BadInputError: it is no ExportTraceServiceRequest.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadInputError(
            f"OTLP request: expected an ExportTraceServiceRequest in protobuf, found {error}; check the exporter"
        ) from error
    return [
        _read(span, _object_of(resource.resource.attributes))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def answer_protobuf(num_rejected: int, reason: str) -> bytes:
    """Say that a request was taken, except for so many spans."""
    partial = ExportTracePartialSuccess(rejected_spans=num_rejected, error_message=reason)
    return ExportTraceServiceResponse(partial_success=partial if reason else None).SerializeToString()


def refuse_protobuf(reason: str) -> bytes:
    """Say why a request was not taken."""
    return Status(message=reason).SerializeToString()


def _read(span: Span, resource: JsonObject) -> SpanReceived:
    return SpanReceived(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        name=span.name,
        began_at=span.start_time_unix_nano / 1e9,
        ended_at=span.end_time_unix_nano / 1e9,
        parent_id=span.parent_span_id.hex() or None,
        state=span.trace_state or None,
        attributes=_object_of(span.attributes),
        resource=resource,
        events=[SpanEvent(name=event.name, attributes=_object_of(event.attributes)) for event in span.events],
        is_error=span.status.code == SpanStatus.STATUS_CODE_ERROR,
        error=span.status.message or None,
    )


def _object_of(pairs: Iterable[KeyValue]) -> JsonObject:
    return {pair.key: _value_of(pair.value) for pair in pairs}


def _value_of(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value_of(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _object_of(value.kvlist_value.values)
    return getattr(value, kind)
