"""Counts of what is doubtful about rollouts."""

import msgspec
import pytest

from agent_layer.schema.trajectory import assemble_trajectory
from trainer_adapter.data.capture import count_capture, has_gap, is_fake_zero

from ...builders import attempt, call, sampled


def trajectory(*calls, score=0.0, **options):
    return assemble_trajectory("x.0-0", attempt("x.0-0", *calls, score=score, **options))


def made(name="c", at=2.0, status="ok", **options):
    begun, ended = call("x.0-0", name, sampled(5, 6), at=at, **options)
    return [begun, msgspec.structs.replace(ended, status=status)]


def test_a_zero_after_a_call_is_the_policys():
    assert not is_fake_zero(trajectory(*made()))


def test_a_zero_without_a_token_of_the_policy_is_none():
    assert is_fake_zero(trajectory())
    assert is_fake_zero(trajectory(*made(role="aux")))


@pytest.mark.parametrize(("status", "is_fake"), [("error", True), ("aborted", False), ("ok", False)])
def test_a_zero_whose_last_call_failed_is_none(status, is_fake):
    assert is_fake_zero(trajectory(*made("c"), *made("d", at=9.0, status=status))) == is_fake
    assert not is_fake_zero(trajectory(*made("c", status=status), *made("d", at=9.0)))


@pytest.mark.parametrize("score", [None, 1.0, -1.0])
def test_only_a_zero_can_be_fake(score):
    assert not is_fake_zero(trajectory(score=score))


def test_a_call_that_never_ended_or_was_not_recorded_is_a_gap():
    (begun, _), whole = made("d", at=9.0), attempt("x.0-0", *made("c"), *made("d", at=9.0))
    lost = [record for record in whole if getattr(record, "call_id", None) != begun.call_id]

    assert has_gap(trajectory(*made(), begun))
    assert has_gap(assemble_trajectory("x.0-0", lost))
    assert not has_gap(assemble_trajectory("x.0-0", whole))
    seen_by_a_hook = [
        msgspec.structs.replace(record, source="hook") if getattr(record, "call_id", None) == begun.call_id else record
        for record in whole
    ]
    assert has_gap(assemble_trajectory("x.0-0", seen_by_a_hook))


def test_a_broken_prefix_counts_once_for_each_call():
    counts = count_capture([trajectory(*made(), *made("d", at=3.0, findings=["prefix_break: edited"]))])

    assert (counts.num_forks, counts.num_gaps, counts.num_fake_zeros) == (1, 0, 0)
