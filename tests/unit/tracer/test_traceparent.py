import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider

import tracer
from tracer.traceparent import format_traceparent, new_span_id, new_trace_id, parse_traceparent

ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")


@given(ids, span_ids)
def test_a_traceparent_comes_back(trace_id, span_id):
    assert parse_traceparent(format_traceparent(trace_id, span_id)) == (trace_id, span_id)


@pytest.mark.parametrize(
    "value",
    ["", "00-1-2-3", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", f"ff-{'1' * 32}-{'1' * 16}-01"],
)
def test_what_is_no_traceparent_is_not_believed(value):
    assert parse_traceparent(value) is None


def test_new_ids_are_of_the_right_length():
    assert (len(new_trace_id()), len(new_span_id())) == (32, 16)


def test_a_rollout_inside_a_span_belongs_to_its_trace():
    outer = TracerProvider().get_tracer("test").start_as_current_span("outer")
    with outer as span, tracer.testing.capture(), tracer.rollout(task="t") as rollout:
        pass

    assert rollout.trace_id == format(span.get_span_context().trace_id, "032x")
