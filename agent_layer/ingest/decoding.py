"""OTLP requests in protobuf and JSON, and answers in the encoding of the request.

In JSON, ids are hexadecimal and 64-bit integers may be text.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status as SpanStatus

from agent_layer.errors import BadInputError
from agent_layer.ingest.protobuf_bounds import check_messages
from agent_layer.ingest.spans import ReceivedEvent, ReceivedSpan
from agent_layer.schema import UNREADABLE, BodyBounds, JsonObject


def check_protobuf(body: bytes, bounds: BodyBounds, subject: str) -> None:
    """Check a request before it is parsed: a span, an event, an attribute and a value of one count as one value each.

    Raises: BadInputError: it holds more than its bounds.
    """
    check_messages(body, ExportTraceServiceRequest.DESCRIPTOR, bounds.values, subject)


_STATUS_ERROR = (2, "STATUS_CODE_ERROR")


def decode_protobuf(body: bytes) -> list[ReceivedSpan]:
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
        _read(span, _attributes(resource.resource.attributes))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def answer_protobuf(num_rejected: int, reason: str) -> bytes:
    """Accept a request except for ``num_rejected`` spans."""
    partial = ExportTracePartialSuccess(rejected_spans=num_rejected, error_message=reason)
    return ExportTraceServiceResponse(partial_success=partial if reason else None).SerializeToString()


def refuse_protobuf(reason: str) -> bytes:
    """Refuse a request, with the reason."""
    return Status(message=reason).SerializeToString()


def _read(span: Span, resource: JsonObject) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        name=span.name,
        began_at=span.start_time_unix_nano / 1e9,
        ended_at=span.end_time_unix_nano / 1e9,
        parent_id=span.parent_span_id.hex() or None,
        state=span.trace_state or None,
        attributes=_attributes(span.attributes),
        resource=resource,
        events=[ReceivedEvent(name=event.name, attributes=_attributes(event.attributes)) for event in span.events],
        is_error=span.status.code == SpanStatus.STATUS_CODE_ERROR,
        error=span.status.message or None,
    )


def _attributes(pairs: Iterable[KeyValue]) -> JsonObject:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind)


_Integer = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,300}$")] | int


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all messages: names in camel case, unknown fields ignored."""


class _Values(_Message, frozen=True):
    values: "list[_Any]" = []


class _Pairs(_Message, frozen=True):
    values: "list[_Pair]" = []


class _Any(_Message, frozen=True):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: _Integer | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: _Values | None = None
    kvlist_value: _Pairs | None = None

    def read(self) -> object:
        if self.array_value is not None:
            return [value.read() for value in self.array_value.values]
        if self.kvlist_value is not None:
            return _json_attributes(self.kvlist_value.values)
        if self.int_value is not None:
            return int(self.int_value)
        plain = (self.string_value, self.bool_value, self.double_value, self.bytes_value)
        return next((value for value in plain if value is not None), None)


class _Pair(_Message, frozen=True):
    key: str
    value: _Any = _Any()


class _Event(_Message, frozen=True):
    name: str = ""
    attributes: list[_Pair] = []


class _Status(_Message, frozen=True):
    code: int | str = 0
    message: str = ""


class _Span(_Message, frozen=True):
    trace_id: str
    span_id: str
    name: str = ""
    parent_span_id: str = ""
    trace_state: str = ""
    start_time_unix_nano: _Integer = 0
    end_time_unix_nano: _Integer = 0
    attributes: list[_Pair] = []
    events: list[_Event] = []
    status: _Status = _Status()


class _Scope(_Message, frozen=True):
    spans: list[msgspec.Raw] = []
    """Decoded one by one: between them other threads run."""


class _Resource(_Message, frozen=True):
    attributes: list[_Pair] = []


class _ResourceSpans(_Message, frozen=True):
    resource: _Resource = _Resource()
    scope_spans: list[_Scope] = []


class _Request(_Message, frozen=True):
    resource_spans: list[_ResourceSpans] = []


_DECODER = msgspec.json.Decoder(_Request)
_SPAN = msgspec.json.Decoder(_Span)


def decode_json(body: bytes) -> list[ReceivedSpan]:
    """Read the spans of a request.

    Raises: BadInputError: it is no ExportTraceServiceRequest.
    """
    try:
        body.decode()  # msgspec does not look at fields that it skips
        return [
            _read_json(_SPAN.decode(span), _json_attributes(resource.resource.attributes))
            for resource in _DECODER.decode(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
    except UNREADABLE as error:
        raise BadInputError(
            f"OTLP request: expected an ExportTraceServiceRequest in JSON, found {error}; check the exporter"
        ) from error


def answer_json(num_rejected: int, reason: str) -> bytes:
    """Accept a request except for ``num_rejected`` spans."""
    partial = {"rejectedSpans": str(num_rejected), "errorMessage": reason}
    return msgspec.json.encode({"partialSuccess": partial} if reason else {})


def refuse_json(reason: str) -> bytes:
    """Refuse a request, with the reason."""
    return msgspec.json.encode({"message": reason})


def _read_json(span: _Span, resource: JsonObject) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span.trace_id.lower(),
        span_id=span.span_id.lower(),
        name=span.name,
        began_at=int(span.start_time_unix_nano) / 1e9,
        ended_at=int(span.end_time_unix_nano) / 1e9,
        parent_id=span.parent_span_id.lower() or None,
        state=span.trace_state or None,
        attributes=_json_attributes(span.attributes),
        resource=resource,
        events=[ReceivedEvent(name=event.name, attributes=_json_attributes(event.attributes)) for event in span.events],
        is_error=span.status.code in _STATUS_ERROR,
        error=span.status.message or None,
    )


def _json_attributes(pairs: list[_Pair]) -> JsonObject:
    return {pair.key: pair.value.read() for pair in pairs}
