"""Names sort by time, derive from one another, and need no escaping."""

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.ids import (
    check_name,
    id_timestamp,
    make_group_id,
    make_rollout_id,
    make_trajectory_id,
    new_id,
    split_trajectory_id,
)


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=5))
def test_ids_sort_by_the_millisecond_of_their_making(milliseconds):
    minted = [new_id(lambda at=at: at * 1_000_000, lambda size: b"\0" * size) for at in milliseconds]

    assert sorted(minted) == [identity for _, identity in sorted(zip(milliseconds, minted, strict=True))]


@given(st.integers(0, 2**47))
def test_an_id_says_when_it_was_minted(milliseconds):
    assert id_timestamp(f"{new_id(lambda: milliseconds * 1_000_000)}-host-1") == milliseconds / 1000


def test_ids_of_one_millisecond_differ():
    assert len({new_id(lambda: 0) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a{b}", "ä", "x" * 129])
def test_a_name_that_would_need_escaping_is_refused(name):
    with pytest.raises(BadInputError, match="choose another name"):
        check_name(name, "task")


def test_the_same_asking_gives_the_same_group_and_others_do_not_collide():
    ids = {
        make_group_id("a.b", "c", 0),
        make_group_id("a", "b.c", 0),
        make_group_id("a", "c", 0),
        make_group_id("a", "c", 1),
    }

    assert len(ids) == 4
    assert make_group_id("a", "c", 1) in ids


@given(st.from_regex(r"[a-z0-9.-]{1,12}", fullmatch=True), st.integers(0, 99), st.integers(0, 99))
def test_a_trajectory_id_gives_back_its_rollout_and_attempt(group, member, attempt):
    rollout_id = make_rollout_id(group, member)

    assert split_trajectory_id(make_trajectory_id(rollout_id, attempt)) == (rollout_id, attempt)


@pytest.mark.parametrize("wrong", ["", "abc", "-0", "abc-", "abc-x"])
def test_what_is_no_trajectory_id_is_refused(wrong):
    with pytest.raises(BadInputError, match="expected ROLLOUT-ATTEMPT"):
        split_trajectory_id(wrong)
