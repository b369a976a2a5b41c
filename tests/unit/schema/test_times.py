"""Times and ranges as users type them."""

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.times import format_span, format_time, parse_range, parse_time

NOW = 1_763_665_980.25


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02T00:00:00Z", 86_400),
        ("1970-01-02T02:00:00+02:00", 86_400),
        ("1970-01-02T00:00:00", 86_400),
        ("1970-01-02", 86_400),
        ("90s", NOW - 90),
        ("2h", NOW - 7_200),
        ("1.5d", NOW - 129_600),
    ],
)
def test_a_time_is_rfc_3339_in_utc_or_a_span_before_now(text, seconds):
    assert parse_time(text, "since", NOW) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.42 s"),
        (90, "90 s"),
        (120, "2 min"),
        (725, "12 min"),
        (9_000, "2.5 h"),
        (90_000, "25 h"),
        (260_000, "3 d"),
    ],
)
def test_a_span_is_written_as_people_read_it(seconds, text):
    assert format_span(seconds) == text


@pytest.mark.parametrize("text", ["", "yesterday", "2 h", "-2h", "2026-13-01"])
def test_what_is_no_time_is_refused_by_name(text):
    with pytest.raises(BadInputError, match="since"):
        parse_time(text, "since", NOW)


@given(st.floats(0, 4e9))
def test_a_time_that_was_shown_can_be_typed_again(seconds):
    again = parse_time(format_time(seconds), "since", NOW)

    assert 0 <= seconds - again < 0.001 or again == pytest.approx(seconds, abs=1e-6)
    assert format_time(again) == format_time(seconds)


@pytest.mark.parametrize(
    ("text", "ends"),
    [("5..", (5, None)), ("..0.5", (None, 0.5)), ("10..20", (10, 20)), ("7", (7, 7)), ("-1..-0.5", (-1, -0.5))],
)
def test_a_range_has_two_ends_of_which_one_may_be_open(text, ends):
    assert parse_range(text, "range") == ends


@pytest.mark.parametrize("text", ["", "..", "2..1", "a..b", "1...2", "nan", "..inf", "1..2..3"])
def test_what_is_no_range_is_refused_by_name(text):
    with pytest.raises(BadInputError, match="reward range"):
        parse_range(text, "reward range")
