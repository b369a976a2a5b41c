"""Bounds of protobuf bodies: a walk counts what a parser would build, however the bytes are written."""

import pytest
from hypothesis import given, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from agent_layer.errors import BadInputError
from agent_layer.ingest.decoding import check_protobuf
from agent_layer.schema import BodyBounds


def lists_of_pairs(values):
    return st.lists(st.builds(KeyValue, key=st.text(max_size=5), value=values), max_size=3)


VALUES = st.recursive(
    st.builds(AnyValue, string_value=st.text(max_size=200)) | st.builds(AnyValue, int_value=st.integers(-9, 9)),
    lambda inner: (
        st.builds(lambda values: AnyValue(array_value=ArrayValue(values=values)), st.lists(inner, max_size=3))
        | st.builds(lambda pairs: AnyValue(kvlist_value=KeyValueList(values=pairs)), lists_of_pairs(inner))
    ),
    max_leaves=8,
)


SPANS = st.builds(
    Span,
    trace_id=st.binary(max_size=16),
    name=st.text(max_size=9),
    start_time_unix_nano=st.integers(0, 2**64 - 1),
    attributes=lists_of_pairs(VALUES),
    events=st.lists(st.builds(Span.Event, name=st.text(max_size=3), attributes=lists_of_pairs(VALUES)), max_size=2),
)
REQUESTS = st.builds(
    lambda spans, pairs: ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(resource=Resource(attributes=pairs), scope_spans=[ScopeSpans(spans=spans), ScopeSpans()])
        ]
    ),
    st.lists(SPANS, max_size=3),
    lists_of_pairs(VALUES),
)


def num_messages(message):
    inner = [value for field, value in message.ListFields() if field.message_type]
    found = [one for value in inner for one in (value if hasattr(value, "append") else [value])]
    return len(found) + sum(map(num_messages, found))


def is_refused(body, most):
    try:
        check_protobuf(body, BodyBounds(values=most, depth=1, messages=1), "request")
    except BadInputError:
        return True
    return False


@given(REQUESTS)
def test_messages_are_counted_as_they_are_parsed(request):
    body, number = request.SerializeToString(), num_messages(request)

    assert [is_refused(body, number - 1), is_refused(body, number)] == [True, False]


@given(st.binary(max_size=40))
def test_what_is_no_protobuf_is_left_to_the_parser(noise):
    for body in (noise, ExportTraceServiceRequest(resource_spans=[ResourceSpans()]).SerializeToString() + noise):
        assert not is_refused(body, 100)


def inside(tag, content):
    """Write a field that has a length."""
    size, sizes = len(content), bytearray()
    while size > 127:
        sizes.append(size & 127 | 128)
        size >>= 7
    return bytes([tag, *sizes, size]) + content


SCOPE, SPAN, ATTRIBUTE, VALUE, LIST = 0x12, 0x12, 0x4A, 0x12, 0x2A


@pytest.mark.parametrize(
    "around",
    [[], [0x0A], [0x0A, SCOPE], [0x0A, SCOPE, SPAN], [0x0A, SCOPE, SPAN, ATTRIBUTE, VALUE, LIST]],
    ids=["resources", "scopes", "spans", "attributes", "values"],
)
@pytest.mark.parametrize("is_long", [False, True], ids=["", "long tags"])
def test_empty_messages_of_few_bytes_are_refused_before_they_are_parsed(around, is_long):
    tag = {0: 0x0A, 1: SCOPE, 2: SPAN, 3: ATTRIBUTE, 6: 0x0A}[len(around)]
    empty = bytes([tag | 0x80, 0, 0]) if is_long else bytes([tag, 0])
    body = empty * 11_000
    for outer in reversed(around):
        body = inside(outer, body)

    with pytest.raises(BadInputError, match="at most 10000 messages inside"):
        check_protobuf(body, BodyBounds(values=10_000, depth=1, messages=1), "OTLP request")


def test_a_long_text_is_no_message():
    body = Span(attributes=[KeyValue(key="a", value=AnyValue(string_value="\n\x12J" * 1000))]).SerializeToString()

    assert not is_refused(inside(0x0A, inside(SCOPE, inside(SPAN, body))), 5)
