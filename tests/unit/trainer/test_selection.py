"""Filters and ramps by name, each with a case by hand."""

import msgspec
import pytest

from agent_layer.schema.task import Task
from trainer_adapter.selection import (
    Curriculum,
    GroupRamp,
    InputSize,
    Labelled,
    LevelRamp,
    SuccessBetween,
    SuccessRamp,
    TaskFilter,
)


def task(**fields):
    return Task(id="t", run="r", **fields)


def test_tasks_between_the_bounds_and_untried_ones_are_admitted():
    part = SuccessBetween(low=0.1, high=0.9)

    assert [part.admits(task(), rate) for rate in (None, 0.0, 0.1, 0.11, 0.89, 0.9, 1.0)] == [
        True,
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_an_input_is_measured_as_the_text_that_it_is():
    assert InputSize(most=4).admits(task(input="äöüß"), None)
    assert not InputSize(most=3).admits(task(input="äöüß"), None)
    assert InputSize(most=7).admits(task(input={"a": 1}), None)
    assert not InputSize(most=6).admits(task(input={"a": 1}), None)


def test_a_label_decides():
    part = Labelled(label="kind", values=["easy", "fair"])

    assert part.admits(task(labels={"kind": "fair"}), 1.0)
    assert not part.admits(task(labels={"kind": "hard"}), None)
    assert not part.admits(task(), None)


def test_a_level_is_mastered_by_its_last_groups():
    part = SuccessRamp(above=0.5, groups=2)

    assert [part.rises(seen) for seen in ([], [1.0], [0.0, 0.5, 0.5], [1.0, 1.0, 0.0, 0.5])] == [
        False,
        False,
        True,
        False,
    ]


def test_a_level_may_end_after_a_number_of_groups():
    assert [GroupRamp(groups=3).rises([0.0] * num) for num in (2, 3)] == [False, True]


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        (TaskFilter, {"name": "succes_between"}, "succes_between"),
        (TaskFilter, {"name": "success_between", "lo": 1}, "lo"),
        (TaskFilter, {"name": "success_between", "low": 0.5, "high": 0.5}, "low below high"),
        (TaskFilter, {"name": "input_size", "most": 0}, "most"),
        (Curriculum, {"name": "variance_share", "minimum": 1}, "minimum"),
        (LevelRamp, {"name": "success_ramp", "above": 2}, "above"),
    ],
)
def test_a_part_or_option_that_there_is_not_is_named(kind, options, named):
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(options, kind)
