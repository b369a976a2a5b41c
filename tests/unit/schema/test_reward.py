"""The reward rule: nulls stay null, and failures that the policy did not cause are null."""

import math

import pytest
from hypothesis import given, strategies as st

from agent_layer.schema.reward import Reward, current_rewards, rollout_reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import RewardSpec


def reward(score, name="reward", reward_id=None, at=0.0, **fields):
    return Reward(
        trajectory_id="t-0", reward_id=reward_id or f"{name}-{at}", run="r", at=at, name=name, score=score, **fields
    )


def outcome(status, cause=None):
    return Outcome(trajectory_id="t-0", run="r", status=status, ended_at=1.0, cause=cause)


def test_declared_rewards_are_summed_by_weight():
    declared = {"correct": RewardSpec(), "format": RewardSpec(weight=0.5)}

    assert rollout_reward(declared, [reward(1.0, "correct"), reward(0.4, "format"), reward(9, "noise")], None) == 1.2


def test_without_a_declaration_every_reward_of_the_rollout_counts():
    assert rollout_reward({}, [reward(1.0), reward(0.5, "bonus"), reward(7.0, "s", scope="step", step=0)], None) == 1.5


def test_no_judgement_is_null_not_zero():
    assert rollout_reward({}, [], None) is None


@pytest.mark.parametrize(
    "missing",
    [[], [reward(None, "b", status="verifier_error")], [reward(None, "b")], [reward(math.nan, "b")]],
)
def test_a_required_reward_that_is_absent_or_not_ok_makes_null(missing):
    declared = {"a": RewardSpec(), "b": RewardSpec()}

    assert rollout_reward(declared, [reward(1.0, "a"), *missing], None) is None


def test_an_optional_reward_may_be_absent():
    assert rollout_reward({"a": RewardSpec(), "b": RewardSpec(required=False)}, [reward(1.0, "a")], None) == 1.0


@pytest.mark.parametrize("cause", ["infra", "verifier", "user"])
def test_a_failure_that_is_not_the_policys_is_null(cause):
    assert rollout_reward({}, [reward(0.0)], outcome("failed", cause)) is None


def test_running_out_of_turns_is_scored_as_it_stands():
    assert rollout_reward({}, [reward(0.0)], outcome("truncated", "policy")) == 0.0


def test_a_later_judgement_replaces_and_a_superseded_one_is_gone():
    first, second = reward(0.0, at=1.0), reward(1.0, at=2.0)
    retracting = reward(None, "other", reward_id="x", at=3.0, supersedes=second.reward_id, status="missing")

    assert rollout_reward({}, [second, first], None) == 1.0
    assert [one.reward_id for one in current_rewards([first, second, retracting])] == [first.reward_id, "x"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(-1, 1), st.integers(0, 9)), max_size=8),
    st.randoms(),
)
def test_order_and_repetition_change_nothing(rows, random):
    rewards = [reward(score, name, f"{number}", float(at)) for number, (name, score, at) in enumerate(rows)]
    shuffled = rewards * 2
    random.shuffle(shuffled)

    assert rollout_reward({}, shuffled, None) == rollout_reward({}, rewards, None)
