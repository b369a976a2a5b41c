"""Claims of judged code: strict JSON, compared by exact type, so that no value is right by being strange."""

import json
import math

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from envs.grading.guest.call_functions import DEEPEST, encode
from envs.grading.plain import ForgedJsonError, check_plain, equal_values, read_json, read_value


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (1, True),
        (True, 1),
        (0, False),
        (1, 1.0),
        (1.0, 1),
        ("1", 1),
        (None, False),
        (None, {}),
        ([1, 2], {"$tuple": [1, 2]}),
        ([1, 2], [1, 2, 3]),
        ([1], [True]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 1.0}),
        ({"$set": [1]}, {"$set": [True]}),
        ({"$float": "nan"}, None),
        (1.5, {"$float": "nan"}),
        ({"$object": "Yes"}, {"$object": "Yes"}),
        ([{"$object": "Yes"}], [{"$object": "Yes"}]),
        (0.1, 0.1000001),
    ],
)
def test_values_of_another_type_or_form_differ(expected, found):
    assert not equal_values(expected, found)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": [1, None, "x"], "b": 2.5}, {"b": 2.5, "a": [1, None, "x"]}),
        ({"$set": [3, 1]}, {"$set": [1, 3]}),
        ({"$float": "nan"}, {"$float": "nan"}),
        ({"$dict": [[1, "a"], [2, "b"]]}, {"$dict": [[2, "b"], [1, "a"]]}),
        (0.0, -0.0),
    ],
)
def test_order_of_keys_and_items_does_not_count(expected, found):
    assert equal_values(expected, found)


FORMS = [[0, 0.0, -0.0, False], [1, 1.0, True], [-1, -1.0], [10**16, 1e16], [2**100, 2.0**100], [11], [1.5], [1e999]]
SHAPES = {
    "set": set,
    "list": list,
    "tuple": tuple,
    "dict": lambda items: dict.fromkeys(items, "x"),
    "sets of sets": lambda items: {frozenset(items), frozenset({"x", 1})},
    "values": lambda items: {str(index): [one] for index, one in enumerate(items)},
}


@given(
    st.lists(st.sampled_from(FORMS).flatmap(lambda forms: st.tuples(st.sampled_from(forms), st.sampled_from(forms)))),
    st.sampled_from(sorted(SHAPES)),
    st.booleans(),
)
def test_equal_by_value_is_what_python_calls_equal(pairs, shape, is_cut):
    one = SHAPES[shape]([pair[0] for pair in pairs])
    other = SHAPES[shape]([pair[1] for pair in pairs][is_cut:])

    claimed = [read_json(json.dumps(encode(value, DEEPEST))) for value in (one, other)]

    assert equal_values(*claimed, by_value=True) is (one == other)


def test_a_tolerance_is_for_floats_alone():
    assert equal_values([1.0], [1.0 + 1e-9], tolerance=1e-6)
    assert not equal_values([1.0], [1.1], tolerance=1e-6)
    assert not equal_values([100], [101], tolerance=0.5)
    assert not equal_values([1.0], [1], tolerance=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "-Infinity",
        "1e999",
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        "[" * 300 + "]" * 300,
        "1" * 5000,
        '{"a": 1} {"a": 2}',
        "",
        b"\xff",
    ],
)
def test_what_no_honest_writer_produces_is_refused(text):
    with pytest.raises(ForgedJsonError):
        read_json(text)


def test_tagged_values_become_python_values_for_checks():
    claim = read_json('[{"$tuple": [1, {"$set": [2]}]}, {"$bytes": "ff"}, {"$dict": [[3, 4]]}, {"$float": "inf"}]')

    assert read_value(claim) == [(1, frozenset({2})), b"\xff", {3: 4}, math.inf]


@pytest.mark.parametrize(
    "claim", [{"$object": "X"}, {"$dict": [1]}, {"$dict": [[[], 1]]}, {"$bytes": "z"}, {"$set": 3}]
)
def test_malformed_tags_are_no_values(claim):
    with pytest.raises(ForgedJsonError):
        read_value(claim)


@pytest.mark.parametrize("value", [{"$tuples": []}, {"a": {"$set": [], "b": 1}}, [{"$object": "X"}]])
def test_an_expectation_that_nothing_can_equal_is_refused(value):
    with pytest.raises(BadInputError, match="no tag"):
        check_plain(value, "case 0")
