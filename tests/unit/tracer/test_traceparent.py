"""Rollouts inside OpenTelemetry traces, with its real SDK."""

import asyncio

import pytest
from hypothesis import given, strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import tracer
from agent_layer.export.spans import make_trace
from agent_layer.schema.trace import TraceContext, parse_trace
from tracer.core.clock import new_span_id, new_trace, write_trace

ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")
states = st.none() | st.just("vendor=1,other=2")
REMOTE = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "1")]))


@pytest.fixture
def spans():
    """OpenTelemetry's own tracer, as a user's program has it."""
    return TracerProvider().get_tracer("test")


def read_ids(span):
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


@given(ids, span_ids, states)
def test_headers_come_back(trace_id, span_id, state):
    trace, headers = TraceContext(trace_id=trace_id, span_id=span_id, state=state), {}
    write_trace(headers, trace, span_id)

    assert parse_trace(headers) == trace


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00-1-2-3",
        f"00-{'x' * 32}-{'1' * 16}-01",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        f"ff-{'1' * 32}-{'1' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_not_believed(value):
    assert parse_trace({"traceparent": value}) is None


def test_new_ids_are_of_the_right_length():
    trace = new_trace()

    assert (len(trace.trace_id), trace.span_id, len(new_span_id())) == (32, None, 16)


def test_a_rollout_inside_a_span_belongs_to_its_trace(spans):
    outer = spans.start_span("outer")
    with tracer.testing.capture() as captured, use_span(outer), tracer.rollout(task="t") as rollout:
        pass

    begun_in = captured.trajectory.started.trace
    assert (begun_in.trace_id, begun_in.span_id) == read_ids(outer)
    assert rollout.trace == begun_in


async def test_it_does_so_too_where_it_is_opened_asynchronously(spans):
    with tracer.testing.capture() as captured, spans.start_as_current_span("outer") as outer:
        async with tracer.rollout(task="t"):
            await asyncio.sleep(0)

    assert captured.trajectory.started.trace.span_id == read_ids(outer)[1]


def test_what_vendors_say_of_a_trace_is_handed_on():
    with tracer.testing.capture(), use_span(NonRecordingSpan(REMOTE)), tracer.rollout(task="t"):
        headers = tracer.inject({})

    received = TraceContextTextMapPropagator().extract(headers)
    (span,) = received.values()
    assert span.get_span_context().trace_id == 7
    assert span.get_span_context().trace_state == REMOTE.trace_state


def test_another_process_goes_on_below_the_attempts_own_span():
    with tracer.testing.capture() as captured, use_span(NonRecordingSpan(REMOTE)), tracer.rollout(task="t"):
        headers = tracer.inject({})
        with tracer.extract(headers) as remote:
            pass

    root = make_trace(captured.trajectory).spans[0]
    assert remote.trace == TraceContext(trace_id=f"{7:032x}", span_id=root.span_id, state="vendor=1")


def test_a_span_of_the_agents_own_is_what_its_requests_go_on_below(spans):
    outer = use_span(spans.start_span("outer"))
    with tracer.testing.capture(), outer, tracer.rollout(task="t"), spans.start_as_current_span("inner") as inner:
        headers = tracer.inject({})

    assert headers["traceparent"].split("-")[1:3] == list(read_ids(inner))
