import pytest
from hypothesis import given, strategies as st

from agent_layer.schema.step import StepPart
from agent_layer.schema.trajectory import assemble_steps, join_spans


def part(call, source="otel", span=None, parent=None, at=1.0):
    own = {"trajectory_id": "x-0", "call_id": call, "run": "r", "source": source, "phase": "end", "at": at}
    return StepPart(**own, span_id=span, parent_span_id=parent)


def calls(*parts):
    return [step.call_id for step in assemble_steps(parts)]


def test_a_span_whose_id_travelled_to_the_gateway_is_the_gateways_call():
    assert calls(part("g", "gateway", span="s"), part("s", span="s")) == ["g"]


def test_a_call_that_a_hook_made_inside_a_span_is_that_spans_call():
    assert calls(part("h", "hook", span="own", parent="s"), part("s", span="s")) == ["h"]


def test_spans_of_framework_and_client_are_one_call():
    assert calls(part("outer", span="outer"), part("inner", span="inner", parent="outer", at=2.0)) == ["outer"]
    assert calls(
        part("outer", span="outer"), part("inner", span="inner", parent="outer"), part("g", "gateway", span="inner")
    ) == ["g"]


def test_two_calls_inside_one_span_stay_two():
    inside = [part(name, span=name, parent="outer", at=2.0) for name in ("a", "b")]

    assert calls(part("outer", span="outer"), *inside) == ["outer", "a", "b"]


def test_calls_below_the_same_other_span_have_nothing_to_do_with_each_other():
    assert calls(part("a", span="a", parent="work"), part("b", span="b", parent="work")) == ["a", "b"]
    assert calls(part("g", "gateway", span="work"), part("h", "gateway", span="work")) == ["g", "h"]


names = st.sampled_from("abcd")
some_parts = st.lists(
    st.builds(
        part,
        names,
        st.sampled_from(["otel", "gateway", "hook"]),
        st.none() | names,
        st.none() | names,
        st.floats(0, 9),
    ),
    max_size=8,
)


@given(some_parts, st.randoms())
def test_the_order_of_parts_changes_nothing(parts, random):
    shuffled = random.sample(parts, len(parts))

    assert {one.call_id for one in join_spans(shuffled)} == {one.call_id for one in join_spans(parts)}


@given(some_parts)
def test_what_was_captured_is_never_joined_with_anything_else_that_was(parts):
    captured = {one.call_id for one in parts if one.source != "otel"}

    assert captured <= {one.call_id for one in join_spans(parts)}


@pytest.mark.parametrize("source", ["gateway", "hook", "handler", "decorator"])
def test_without_spans_of_others_nothing_is_joined(source):
    assert calls(part("a", source, span="s"), part("b", source, span="s", parent="s")) == ["a", "b"]
