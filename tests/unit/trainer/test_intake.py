"""Intake: stale rollouts are dropped, failures count as failures, every task has the same weight."""

import msgspec
import pytest

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.data.groups import count_step, read_group, success_by_task


def trajectory(name, *, version=0, score=1.0, cause=None, temperature=1.0):
    own = {"trajectory_id": f"{name}-0", "run": "r"}
    action = Action(response_token_ids=TokenIds([5]), logprobs=Logprobs([-0.1]), policy_versions=[(version, 1)])
    records = [
        AttemptStarted(**own, rollout_id=name, attempt=0, task_id="t", started_at=0.0),
        StepPart(
            **own,
            call_id="c",
            source="gateway",
            phase="end",
            at=1.0,
            prompt=PromptDelta(delta=TokenIds([1])),
            actions=[action, action],
            status="ok",
            capture_level="tokens",
            temperature=temperature,
        ),
        Reward(**own, reward_id="w", at=2.0, score=score),
        Outcome(**own, status="completed", ended_at=3.0, cause=cause),
    ]
    return assemble_trajectory(f"{name}-0", records)


def delivery(*trajectories, group_size=None, task_id="t"):
    group = Group(
        group_id=f"g-{task_id}",
        run="r",
        task_id=task_id,
        closed_at=4.0,
        group_size=group_size or len(trajectories),
        trajectory_ids=[one.trajectory_id for one in trajectories],
    )
    return GroupDelivery(group, list(trajectories), lambda: None)


def with_group(one, **fields):
    return GroupDelivery(msgspec.structs.replace(one.group, **fields), one.trajectories, one.ack)


def test_one_rollout_that_is_too_old_makes_its_group_stale_and_none_of_it_is_trained():
    old, young, younger = trajectory("a", version=1), trajectory("b", version=2, score=0.0), trajectory("c", version=3)

    group = read_group(delivery(old, young, younger), policy_version=3, max_staleness=1)

    assert (group.is_stale, group.num_stale_rollouts, group.samples.rollouts, group.ages) == (True, 1, [], [])
    counts = count_step([group])
    assert (counts.num_stale_rollouts, counts.redone_by_task, counts.num_tokens) == (1, {"t": 1}, 0)
    assert counts.num_dead_groups == 0


def test_a_group_of_rollouts_young_enough_is_not_stale():
    young, younger = trajectory("b", version=2, score=0.0), trajectory("c", version=3)

    group = read_group(delivery(young, younger), policy_version=3, max_staleness=1)

    assert (group.is_stale, group.teaches) == (False, True)
    counts = count_step([group])
    assert (counts.redone_by_task, counts.staleness_max, counts.staleness_mean) == ({}, 1, 0.5)


def test_on_policy_takes_nothing_older():
    assert not read_group(delivery(trajectory("a", version=2)), policy_version=2, max_staleness=0).is_stale
    assert read_group(delivery(trajectory("a", version=1)), policy_version=2, max_staleness=0).is_stale


def test_failures_of_others_and_rollouts_that_died_have_no_reward():
    scored, failed = trajectory("a", score=0.5), trajectory("b", score=0.0, cause="infra")

    counts = count_step([read_group(delivery(scored, failed, group_size=4), 0, 1)])

    assert (counts.num_rollouts, counts.num_null_rewards, counts.reward_mean) == (4, 3, 0.5)
    assert counts.num_dead_groups == 1


def test_a_call_counts_once_and_its_choices_are_all_trained():
    counts = count_step([read_group(delivery(trajectory("a"), trajectory("b")), 0, 1)])

    assert (counts.num_calls, counts.num_tokens) == (2, 4)


def test_a_group_with_fewer_than_two_rewards_has_no_baseline_and_is_no_part_of_a_step():
    one, null = trajectory("a", score=1.0), trajectory("b", cause="infra")

    assert read_group(delivery(one, null), 0, 1).is_void
    assert read_group(delivery(one, trajectory("c", version=1), group_size=2), 3, 2).is_void
    assert not read_group(delivery(one, null, trajectory("c", score=0.0)), 0, 1).is_void


def test_a_rollout_that_cannot_be_trained_leaves_its_baseline_and_is_counted_by_kind():
    good = [trajectory("a", score=0.0), trajectory("b")]
    poison = [trajectory("c", temperature=0.0), trajectory("d", score=5.0, temperature=0.7)]

    group = read_group(delivery(*good, *poison), policy_version=0, max_staleness=0)

    assert [rollout.trajectory_id for rollout in group.samples.rollouts] == ["a-0", "b-0"]
    assert [(one.trajectory_id, one.kind) for one in group.excluded] == [
        ("c-0", "greedy"),
        ("d-0", "unknown_logprobs"),
    ]
    assert count_step([group]).untrainable == {"greedy": 1, "unknown_logprobs": 1}
    assert (group.is_stale, group.is_void, group.num_null_rewards) == (False, False, 0)


def test_a_group_with_one_reward_left_is_void():
    group = read_group(delivery(trajectory("a"), trajectory("b", score=0.0, temperature=0.0)), 0, 0)

    assert group.is_void
    assert not group.is_stale


def test_groups_are_counted_by_how_they_were_filled():
    whole, short = delivery(trajectory("a"), trajectory("b")), delivery(trajectory("c"), group_size=2)
    dropped = with_group(delivery(group_size=4), fill="dropped", num_usable=3)

    groups = [read_group(one, 0, 1) for one in (whole, short, dropped)]
    counts = count_step(groups)

    assert (counts.num_whole_groups, counts.num_short_groups, counts.num_dropped_groups) == (1, 1, 1)
    assert (counts.num_rollouts, counts.num_null_rewards) == (8, 2)
    assert groups[2].is_void


def test_rollouts_that_were_tried_beyond_the_size_of_a_group_count_as_failures():
    refilled = delivery(trajectory("a"), trajectory("b"), trajectory("c", cause="infra"), group_size=2)

    counts = count_step([read_group(refilled, 0, 1)])

    assert (counts.num_rollouts, counts.num_null_rewards, counts.num_whole_groups) == (3, 1, 1)


def test_the_time_of_what_was_kept_stands_against_that_of_the_surplus():
    whole = delivery(trajectory("a"), trajectory("b"))
    cut = [
        with_group(whole, num_usable=3, num_surplus=1, kept_seconds=2.0, surplus_seconds=10.0),
        with_group(whole, num_usable=1, num_surplus=3, kept_seconds=6.0, surplus_seconds=30.0),
        with_group(whole, num_usable=9, kept_seconds=100.0),
    ]

    counts = count_step([read_group(one, 0, 1) for one in cut])

    assert (counts.num_surplus_rollouts, counts.kept_seconds, counts.surplus_seconds) == (4, 3.0, 25.0)


def test_groups_of_equal_rewards_teach_where_the_baseline_is_the_step_and_others_differ():
    solved = read_group(delivery(trajectory("a"), trajectory("b"), task_id="solved"), 0, 1)
    failed = read_group(delivery(trajectory("c", score=0.0), trajectory("d", score=0.0), task_id="failed"), 0, 1)

    assert count_step([solved, failed]).num_dead_groups == 2
    assert count_step([solved, failed], compares_groups=False).num_dead_groups == 0
    assert count_step([solved, solved], compares_groups=False).num_dead_groups == 2


def test_success_is_by_task_and_leaves_out_what_was_not_judged():
    groups = [
        read_group(delivery(trajectory("a"), trajectory("b", score=0.0), task_id="half"), 0, 1),
        read_group(delivery(trajectory("c"), trajectory("d", cause="infra"), task_id="whole"), 0, 1),
        read_group(delivery(task_id="none", group_size=2), 0, 1),
    ]

    assert success_by_task(groups, above=0.0) == {"half": 0.5, "whole": 1.0}


def test_an_empty_step_counts_nothing():
    counts = msgspec.structs.asdict(count_step([]))

    assert counts.pop("untrainable") == {}
    assert [counts.pop(name) for name in ("reward_mean", "kept_seconds", "surplus_seconds")] == [None] * 3
    assert [counts.pop(name) for name in ("redone_by_task", "self_inflicted", "cut_tokens")] == [{}, {}, {}]
    assert set(counts.values()) == {0}
    assert counts["staleness_mean"] == pytest.approx(0.0)
