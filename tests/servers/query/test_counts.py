"""Counts, summaries and explanations equal those of plain Python over all trajectories."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings as hypothesis_settings, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.ids import new_id
from agent_layer.store.index.aggregate import count_by_bucket, count_by_fields
from agent_layer.store.index.filters import find_bucket
from agent_layer.store.index.index import Index

from ...profiles import num_examples

NUM_TRAJECTORIES = 300


def test_counts_and_scans_see_what_a_plain_filter_would(full_store, models):
    @hypothesis_settings(max_examples=num_examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(models.requests)
    def check(prompt):
        wanted = models.answer(prompt, "oldest")
        assert full_store.count(**prompt) == len(wanted)
        assert [row.trajectory_id for row in full_store.scan(**prompt)] == wanted

    check()


def test_counts_by_value_and_bucket_are_those_of_plain_python(full_store, models):
    index = Index(full_store.redis, full_store.keys)

    @hypothesis_settings(max_examples=num_examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(models.requests)
    def check(prompt):
        wanted = [one for one in models.all if one.passes(prompt)]
        num, counts = count_by_fields(index, list(FIELDS), prompt)
        assert num == len(wanted)
        for field, values_of in FIELDS.items():
            of_all = Counter(value for one in wanted for value in values_of(one))
            only = prompt.get(field) if field in ("run", "task_type", "status") else None
            assert counts[field] == {value: of_all[value] for value in of_all if only in (None, value)}, field
        num, buckets = count_by_bucket(index, prompt)
        rewards = [one.reward for one in wanted if one.reward is not None]
        assert num == len(wanted)
        assert +Counter(buckets) == Counter(map(find_bucket, rewards))

    check()


FIELDS = {
    "run": lambda one: [one.run],
    "task_type": lambda one: [one.task_type],
    "status": lambda one: [one.status],
    "agent": lambda one: set(one.agents),
    "policy": lambda one: [max(one.versions, default=None)],
}


@pytest.mark.parametrize("wanted", [{}, {"run": "r", "reward": (0.0, None)}, {"agent": "solver", "since": 1_050.0}])
def test_a_summary_says_what_a_plain_sum_would(full_store, wanted, models):
    for by in (
        [],
        ["task"],
        ["task", "policy"],
        ["task_type"],
        ["policy"],
        ["task_type", "policy"],
        ["run", "status", "agent"],
        ["policy", "run"],
    ):
        check_summary(full_store, models, wanted, by)


def check_summary(full_store, models, wanted, by):
    lines = defaultdict(list)
    for one in (model for model in models.all if model.passes(wanted)):
        fields = FIELDS | {"task": lambda one: [one.task]}
        for values in product(*(fields[field](one) for field in by)):
            lines[values].append(one.reward)

    found = full_store.summarise(by, success=0.5, **wanted)

    assert {tuple(one.by.values()): (one.count, one.num_rewarded) for one in found} == {
        values: (len(rewards), sum(reward is not None for reward in rewards)) for values, rewards in lines.items()
    }
    for one in found:
        known = [reward for reward in lines[tuple(one.by.values())] if reward is not None]
        assert list(one.by) == by
        assert one.mean_reward == (float(sum(map(Fraction, known)) / len(known)) if known else None)
        assert one.success_rate == (sum(reward >= 0.5 for reward in known) / len(known) if known else None)


def test_a_mean_is_exact_whatever_the_order_in_which_rewards_came(store, write, make_attempt):
    @hypothesis_settings(max_examples=num_examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
    @example([1.7e308, 1.7e308, 1e-3, -1.7e308] * 50)
    @example([1e16, 0.1, 1.0, -1e16, 0.2, 5e-324])
    def check(rewards):
        run = new_id()
        for number, reward in enumerate(rewards):
            write(*make_attempt(f"{run}.{number}-0", score=reward, run=run))
        (found,) = store.summarise([], run=run)
        assert found.mean_reward == float(sum(map(Fraction, rewards)) / len(rewards))

    check()


def test_a_summary_by_something_unknown_is_refused(store):
    with pytest.raises(BadInputError, match="summary by 'colour'"):
        store.summarise(["colour"])


def test_an_explanation_names_the_rarest_condition_and_the_work(full_store, models):
    answer = full_store.explain(run="r", task="t1", reward=(0.0, None), accepted=False)

    counts = {name: sum(one.passes(fields) for one in models.all) for name, fields in EXPLAINED.items()}
    assert answer.conditions == counts
    assert answer.lead == "task=t1"
    assert (answer.num_trajectories, answer.num_blocks) == (len(models.all), 1)
    assert answer.num_found <= answer.num_tested <= counts["task=t1"]


EXPLAINED = {
    "run=r": {"run": "r"},
    "task=t1": {"task": "t1"},
    "rewarded": {"reward": (-99.0, None)},
    "not accepted=1": {"accepted": False},
    "0 <= reward <= inf": {"reward": (0.0, None)},
}
