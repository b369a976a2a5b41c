"""Advantages: nulls leave the baseline, equal rewards teach nothing."""

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import EmptyGroupError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import AdvantageRule, TrainingSample
from trainer_adapter.algorithms import AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.algorithms.papers import ALGORITHMS
from trainer_adapter.data.advantages import (
    Credits,
    GroupSamples,
    RolloutSamples,
    group_advantages,
    select_batch,
    value_advantages,
)

rewards = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0])), max_size=6)


def sample(trajectory_id, number, reward):
    return TrainingSample(
        sample_id=f"{trajectory_id}.{number}",
        trajectory_id=trajectory_id,
        run="r",
        task_id="q",
        prompt_ids=TokenIds([1]),
        response_ids=TokenIds([2]),
        loss_mask=TokenIds([1]),
        logprobs=Logprobs([-0.5]),
        versions=TokenIds([0]),
        reward=reward,
    )


def make_group(group_id, rollout_rewards, num_samples=1):
    rollouts = []
    for member, reward in enumerate(rollout_rewards):
        trajectory_id = f"{group_id}.{member}-0"
        samples = [sample(trajectory_id, number, reward) for number in range(num_samples)]
        rollouts.append(RolloutSamples(trajectory_id=trajectory_id, reward=reward, samples=samples))
    return GroupSamples(group_id=group_id, task_id="q", rollouts=rollouts)


@given(st.lists(rewards, max_size=4))
def test_a_null_reward_is_never_trained_and_never_in_a_baseline(reward_lists):
    batch = select_batch((make_group(f"g{number}", one) for number, one in enumerate(reward_lists)), keep_equal=False)

    judged = [[reward for reward in found if reward is not None] for found in reward_lists]
    assert batch.rewards == [reward for found in judged if len(set(found)) > 1 for reward in found]
    assert [row.reward for row in batch.samples] == batch.rewards
    assert batch.rollout_of == list(range(len(batch.rewards)))


@given(rewards.filter(lambda found: any(reward is not None for reward in found)), st.booleans())
def test_a_null_reward_changes_nobody_elses_advantage(found, scale_by_std):
    with_nulls = group_advantages(found, scale_by_std=scale_by_std)
    without = group_advantages([reward for reward in found if reward is not None], scale_by_std=scale_by_std)

    assert [advantage for advantage in with_nulls if advantage is not None] == without
    assert [advantage is None for advantage in with_nulls] == [reward is None for reward in found]
    assert sum(without) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("size", [2.0**1023, -(2.0**1023), 2.0**501, 2.0**499])
@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce++"])
def test_huge_rewards_teach_what_small_ones_of_the_same_ratio_do(estimator, size):
    rule = AdvantageRule(estimator=estimator, scale_by_std=True)
    ratios = [1.0, -1.0, 0.5, 0.0]

    def judge(factor):
        return value_advantages(Credits(values=[one * factor for one in ratios], baselines=["g"] * 4, spans=[]), rule)

    assert judge(size) == pytest.approx(judge(2.0**200 if size > 0 else -(2.0**200)))


def test_equal_rewards_teach_nothing():
    assert group_advantages([0.1, None, 0.1, 0.1], scale_by_std=True) == [0.0, None, 0.0, 0.0]
    assert select_batch([make_group("g", [0.1, 0.1, 0.1])], keep_equal=False).samples == []


def test_a_task_that_always_fails_is_kept_where_an_entropy_bonus_can_find_it_again():
    batch = select_batch([make_group("g", [-0.5, -0.5]), make_group("h", [1.0, 0.0])], keep_equal=True)

    assert batch.rewards == [-0.5, -0.5, 1.0, 0.0]
    decaying = resolve_algorithm(AlgorithmConfig(entropy=Schedule(start=0.03, end=0.0, shape="linear")))
    assert decaying.is_regularised(0, 10)
    assert not decaying.is_regularised(9, 10)
    assert resolve_algorithm(AlgorithmConfig(kl=0.1)).is_regularised(9, 10)


def test_a_lone_reward_has_no_baseline():
    assert select_batch([make_group("g", [1.0, None])], keep_equal=True).samples == []


@pytest.mark.parametrize("name", [None, *ALGORITHMS])
@given(groups=st.lists(rewards, max_size=4), lone=st.floats(-9, 9), num_null=st.integers(0, 3))
def test_a_lone_reward_is_no_part_of_a_batch_of_any_algorithm(name, groups, lone, num_null):
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))
    keep_equal = algorithm.is_regularised(0, 1) or not algorithm.compares_groups
    others = [make_group(f"g{number}", one) for number, one in enumerate(groups)]

    batch = select_batch([*others, make_group("lone", [lone, *[None] * num_null])], keep_equal=keep_equal)

    assert batch == select_batch(others, keep_equal=keep_equal)


def test_advantages_are_those_of_the_formula():
    assert group_advantages([1.0, 0.0, 0.0, 1.0], scale_by_std=False) == [0.5, -0.5, -0.5, 0.5]
    assert group_advantages([1.0, 0.0], scale_by_std=True) == pytest.approx([0.7071, -0.7071], abs=1e-4)


def test_a_rollout_counts_once_however_many_samples_it_has():
    batch = select_batch([make_group("g", [1.0, 0.0], num_samples=3)], keep_equal=False)

    assert batch.rewards == [1.0, 0.0]
    assert batch.rollout_of == [0, 0, 0, 1, 1, 1]


def test_a_group_without_any_reward_has_no_advantages():
    with pytest.raises(EmptyGroupError):
        group_advantages([None, None], scale_by_std=True)
