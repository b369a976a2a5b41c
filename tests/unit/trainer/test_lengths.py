"""Rollouts and rows that are too long: nothing is cut in silence, and what is left is trained exactly."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.codec import encode
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.training import ExcludedRollout, LengthRule
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.algorithms import OverlongPenalty
from trainer_adapter.config import load_config
from trainer_adapter.data.advantages import assign_credit, select_batch
from trainer_adapter.data.credit import BY_ROLLOUT, CreditRule
from trainer_adapter.data.groups import count_step, read_group
from trainer_adapter.data.lengths import fit_rows, is_overlong
from trainer_adapter.data.replay import rebuild_batch, record_batch
from trainer_adapter.data.samples import samples_of

from ...builders import closed_group
from .step_trees import STARTED, call, make_trajectory, step_trees


def rollout(name, score, *, status="completed", finish_reason="stop", num_tokens=2):
    """A rollout of one call, whose answer ends for this reason."""
    (part,) = [call("c", [[7] * num_tokens], [1, 2])]
    part = msgspec.structs.replace(
        part, actions=[msgspec.structs.replace(part.actions[0], finish_reason=finish_reason)]
    )
    cause = "policy" if status == "truncated" else None
    found = make_trajectory(
        part,
        Reward(trajectory_id="t-0", reward_id=f"{name}/w", run="r", at=3.0, score=score),
        Outcome(trajectory_id="t-0", run="r", status=status, cause=cause, ended_at=4.0),
        started=msgspec.structs.replace(STARTED, rollout_id=name),
    )
    return msgspec.structs.replace(found, trajectory_id=f"{name}-0")


def intake(rule, *trajectories, credit=BY_ROLLOUT):
    group = closed_group("g", *[one.trajectory_id for one in trajectories], group_size=len(trajectories))
    return read_group(GroupDelivery(group, list(trajectories), lambda: None), 0, 0, credit, rule)


def make_batch(rule, *trajectories, credit=BY_ROLLOUT):
    group = intake(rule, *trajectories, credit=credit)
    return select_batch([group.samples], keep_equal=False, rule=credit)


LONG = {
    "truncated": {"status": "truncated"},
    "last answer cut off": {"finish_reason": "length"},
}


@pytest.mark.parametrize("ending", LONG.values(), ids=LONG)
def test_a_rollout_that_ran_out_of_a_limit_is_overlong(ending):
    assert is_overlong(rollout("a", 1.0, **ending))
    assert not is_overlong(rollout("a", 1.0))


def test_an_earlier_answer_that_was_cut_off_is_no_end():
    cut = call("a", [[3]], [1], at=1.0)
    cut = msgspec.structs.replace(cut, actions=[msgspec.structs.replace(cut.actions[0], finish_reason="length")])
    after = call("b", [[6]], [5], at=2.0, parent=("a", 0), prefix_length=2)

    assert is_overlong(make_trajectory(cut))
    assert not is_overlong(make_trajectory(cut, after))
    assert not is_overlong(make_trajectory())


@pytest.mark.parametrize(
    ("overlong", "rewards", "trained", "null"),
    [
        ("score", [0.0, 1.0, 2.0], ["a-0", "b-0", "c-0"], 0),
        ("mask", [0.0, 1.0, 2.0], ["a-0", "b-0"], 0),
        ("null", [0.0, 1.0], ["a-0", "b-0"], 1),
    ],
)
def test_an_overlong_rollout_is_scored_masked_or_unknown(overlong, rewards, trained, null):
    members = rollout("a", 0.0), rollout("b", 1.0), rollout("c", 2.0, status="truncated")
    group = intake(LengthRule(overlong=overlong), *members)

    batch = select_batch([group.samples], keep_equal=False)

    assert batch.rewards == rewards
    assert [batch.trajectory_ids[position] for position in batch.rollout_of] == trained
    counts = count_step([group])
    assert (counts.num_overlong, counts.num_null_rewards, counts.untrainable) == (1, null, {})


def test_a_masked_rollout_is_punished_for_its_length_all_the_same():
    credit = CreditRule(overlong_penalty=OverlongPenalty(max_tokens=4, buffer_tokens=2))
    members = rollout("a", 1.0), rollout("b", 1.0, status="truncated", num_tokens=4)

    batch = make_batch(LengthRule(overlong="mask"), *members, credit=credit)

    assert assign_credit(batch, credit).values == [1.0, 0.0]
    assert batch.rollout_of == [0]


@given(step_trees(), st.integers(1, 20))
def test_cutting_the_end_of_long_rows_trains_the_rest_exactly_once_in_its_own_context(trajectory, most):
    whole = samples_of(trajectory)
    found = fit_rows(trajectory, whole, LengthRule(max_row_tokens=most, long_rows="cut_end"))

    trained = sum(sum(sample.loss_mask) for sample in found.samples)
    left_out = sum(one.num_tokens for one in [*found.drops, *found.cuts])
    assert trained + left_out == sum(len(step.action.response_token_ids) for step in policy_steps(trajectory))
    steps = {(step.call_id, step.choice): step for step in trajectory.steps}
    for sample in found.samples:
        ids = sample.prompt_ids + sample.response_ids
        assert len(ids) <= most
        assert sample.loss_mask[-1] == 1
        for ref in sample.steps:
            step, begin = steps[ref.call_id, ref.choice], len(sample.prompt_ids) + ref.start
            where = slice(ref.start, ref.start + ref.num_tokens)
            assert ids[:begin] == step.prompt_token_ids
            assert ids[begin : begin + ref.num_tokens] == step.action.response_token_ids[: ref.num_tokens]
            assert sample.logprobs[where] == step.action.logprobs[: ref.num_tokens]
            assert set(sample.loss_mask[where]) == {1}


@given(step_trees())
def test_rows_within_the_limit_stay_what_they_are(trajectory):
    whole = samples_of(trajectory)
    longest = max((len(one.prompt_ids) + len(one.response_ids) for one in whole.samples), default=1)

    for long_rows in ("exclude", "cut_end"):
        assert fit_rows(trajectory, whole, LengthRule(max_row_tokens=longest, long_rows=long_rows)) == whole


def test_a_rollout_with_a_row_that_is_too_long_is_left_out_by_name():
    members = rollout("a", 0.0), rollout("b", 1.0), rollout("c", 5.0, num_tokens=3)

    group = intake(LengthRule(max_row_tokens=4), *members)

    assert [one.trajectory_id for one in group.samples.rollouts] == ["a-0", "b-0"]
    (excluded,) = group.excluded
    assert isinstance(excluded, ExcludedRollout)
    assert "longest row has 5 tokens, optimizer.max_row_tokens is 4" in excluded.reason
    assert count_step([group]).untrainable == {"long_row": 1}


def test_cut_tokens_are_counted_by_task():
    members = rollout("a", 0.0, num_tokens=5), rollout("b", 1.0)

    group = intake(LengthRule(max_row_tokens=4, long_rows="cut_end"), *members)

    counts = count_step([group, intake(LengthRule(), *members)])
    assert (counts.cut_tokens, counts.num_dropped_steps) == ({group.group.task_id: 3}, 0)


RULES = [LengthRule(overlong="mask"), LengthRule(overlong="null"), LengthRule(max_row_tokens=3, long_rows="cut_end")]


@pytest.mark.parametrize("rule", RULES)
def test_a_batch_without_what_was_too_long_is_rebuilt_to_the_byte(rule):
    members = [rollout("a", 0.0), rollout("b", 1.0), rollout("c", 0.5, status="truncated", num_tokens=4)]
    batch = make_batch(rule, *members)
    record = record_batch(batch, "r", 1, 0, rule)

    rebuilt = rebuild_batch(record, {one.trajectory_id: one for one in members}.__getitem__)

    assert rebuilt.differences == []
    assert rebuilt.content == encode(batch)
    assert batch != make_batch(LengthRule(), *members)


def test_a_policy_for_rows_that_are_never_too_long_is_refused(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ntasks: t\nsteps: 1\noptimizer: {long_rows: cut_end}\n")

    with pytest.raises(BadInputError, match=r"optimizer\.long_rows: no row is too long"):
        load_config(path)


def policy_steps(trajectory):
    return [step for step in trajectory.steps if step.role == "policy"]
