"""Schedules begin and end at the configured values, and stay there."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from trainer_adapter.config import Schedule


def test_a_warm_up_rises_to_the_start():
    schedule = Schedule(start=1.0, warmup_steps=4)

    assert [schedule.value_at(step, 10) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_decay_goes_from_start_to_end_and_stays_there(shape):
    schedule = Schedule(start=1.0, end=0.1, shape=shape)
    values = [schedule.value_at(step, 11) for step in range(20)]

    assert values[0] == 1.0
    assert values[5] == pytest.approx(0.55)
    assert values[10:] == pytest.approx([0.1] * 10)
    assert values == sorted(values, reverse=True)


def test_a_decay_may_end_before_the_run():
    assert Schedule(start=1.0, end=0.0, shape="linear", num_steps=3).value_at(2, 100) == 0.0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": -1e-6}, r">= 0.0 - at `\$\.start`"),
        ({"start": 1e-3, "end": 0}, "a constant never reaches its end 0; set shape"),
        ({"start": 1e-3, "warmup_steps": -1}, "warmup_steps"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_where_it_is_read(options, named):
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(options, Schedule)


@given(
    st.builds(
        Schedule,
        start=st.floats(0, 1),
        end=st.one_of(st.none(), st.floats(0, 1)),
        shape=st.sampled_from(["linear", "cosine"]),
        warmup_steps=st.integers(0, 5),
        num_steps=st.one_of(st.none(), st.integers(1, 9)),
    ),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_a_value_never_leaves_its_bounds(schedule, step, run_steps):
    ends = [schedule.start, schedule.start if schedule.end is None else schedule.end]

    assert min(0.0, *ends) <= schedule.value_at(step, run_steps) <= max(ends) + 1e-12
