"""Outputs compared by words: numbers by value, and no tolerance lets a neighbouring integer pass."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from envs.grading.programs import equal_words, read_program_grading

NUMBERS = st.integers(-(10**30), 10**30)


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "wanted"),
    [
        ("1 2\n", "1\n2", 0, True),
        ("12", "1 2", 0, False),
        ("a b", "a  b\t\n", 0, True),
        ("a b", "a b c", 0, False),
        ("a b", "a", 0, False),
        ("Yes", "yes", 0, False),
        ("3", "3.00", 0, True),
        ("3", "+3", 0, True),
        ("3", "3.01", 0.5, False),
        ("3", "4", 1, False),
        ("1.5", "1.50", 0, True),
        ("1.5", "1.5004", 1e-3, True),
        ("1.5", "1.6", 1e-3, False),
        ("1e3", "1000", 0, True),
        ("0.333333", "0.3333333333", 1e-6, True),
        ("1.0", "nan", 1, False),
        ("1.0", "inf", 1, False),
        ("nan", "nan", 0, True),
        ("1.0", "0x1", 1, False),
        ("1.0", "1_0", 1, False),
        ("1e400", "2e400", 1, False),
        ("12345678901234567.0", "12345678901234568.0", 0, False),
        ("1.0", "9" * 1000, 1, False),
        ("1000000000000000000", "1000000000000000001", 1, False),
        ("", " \n", 0, True),
        ("", "x", 1, False),
    ],
)
def test_words_are_equal_by_value(expected, found, tolerance, wanted):
    assert equal_words(expected.encode(), found.encode(), tolerance) is wanted


@pytest.mark.parametrize(
    "case",
    [{"weight": weight} for weight in (0, -1, math.nan, math.inf, 1e308)] + [{"stdin": "\ud800"}, {"args": ["\ud800"]}],
)
def test_a_case_that_no_program_can_meet_is_refused(case):
    with pytest.raises(BadInputError, match="task 't'"):
        read_program_grading({"run": ["x"], "cases": [{"expected": "", **case}]}, "t")


@given(NUMBERS, NUMBERS, st.floats(0, 1))
def test_an_integer_is_met_by_its_own_value_only(expected, found, tolerance):
    assert equal_words(b"%d" % expected, b"%d" % found, tolerance) is (expected == found)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.sampled_from([0, 1e-9, 1e-3]))
def test_a_number_with_a_point_may_differ_by_the_tolerance_and_by_no_more(expected, found, tolerance):
    one, other = f"{expected:.6f}", f"{found:.6f}"
    difference = abs(Fraction(one) - Fraction(other))
    allowed = Fraction(tolerance) * max(1, abs(Fraction(one)), abs(Fraction(other)))

    if equal_words(one.encode(), other.encode(), tolerance):
        assert difference <= allowed * Fraction(1001, 1000)
    else:
        assert difference >= allowed * Fraction(999, 1000)


@given(st.binary(), st.binary())
def test_any_bytes_can_be_compared_and_equal_themselves(expected, found):
    assert equal_words(expected, expected)
    assert equal_words(expected, found) in (True, False)
