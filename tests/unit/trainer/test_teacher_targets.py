"""Every sampled token gets the teacher's number for exactly that token, others none; rows without numbers are named."""

import msgspec
import pytest
from hypothesis import given

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.groups import read_group
from trainer_adapter.data.samples import samples_of
from trainer_adapter.teacher.targets import Silence, align_scores, judge_group

from ...builders import closed_group
from ...teaching import judge
from .step_trees import STARTED, call, step_trees


def score(rows):
    """As a teacher does: each token but the first."""
    return [Logprobs(judge(row[:place], row[place]) for place in range(1, len(row))) for row in rows]


def make_row(sample):
    return TokenIds([*sample.prompt_ids, *sample.response_ids])


@given(step_trees())
def test_each_sampled_token_of_any_tree_gets_the_number_of_its_own_context_once(whole):
    steps = {(step.call_id, step.choice): step for step in whole.steps}
    found = {}
    for sample in samples_of(whole).samples:
        targets = align_scores(sample, score([make_row(sample)])[0])
        given_tokens = [one for one, is_trained in zip(targets, sample.loss_mask, strict=True) if not is_trained]
        assert given_tokens == [0.0] * len(given_tokens)
        for ref in sample.steps:
            assert (ref.call_id, ref.choice) not in found
            found[ref.call_id, ref.choice] = targets[ref.start : ref.start + ref.num_tokens]

    trained = {name for name, step in steps.items() if step.role == "policy" and step.status == "ok"}
    assert set(found) == trained
    for name in trained:
        prompt, answer = list(steps[name].prompt_token_ids), list(steps[name].action.response_token_ids)
        expected = [judge([*prompt, *answer[:place]], token) for place, token in enumerate(answer)]
        assert list(found[name]) == pytest.approx(expected, rel=1e-6)


def rollout(name, reward, *parts, temperature=1.0):
    own = {"trajectory_id": f"{name}-0"}
    records = [
        *(parts or [call("a", [[3, 4]], [1, 2], temperature=temperature)]),
        Reward(trajectory_id="", reward_id=f"{name}/w", run="r", at=8.0, score=reward),
        Outcome(trajectory_id="", run="r", status="completed", ended_at=9.0),
        msgspec.structs.replace(STARTED, rollout_id=name),
    ]
    return assemble_trajectory(f"{name}-0", [msgspec.structs.replace(record, **own) for record in records])


def with_a_fork():
    return [
        call("a", [[3, 4]], [1, 2], version=1),
        call("b", [[6]], [5], at=2.0, parent=("a", 0), prefix_length=4, version=2),
        call("c", [[7, 8, 9]], [10], at=3.0, parent=("a", 0), prefix_length=4, version=2),
    ]


def intake(*trajectories):
    group = closed_group("g", *[one.trajectory_id for one in trajectories], group_size=len(trajectories))
    return read_group(GroupDelivery(group, list(trajectories), lambda: None), 2, 9)


def test_rows_of_a_batch_have_their_own_numbers():
    group = intake(rollout("x", 1.0, *with_a_fork()), rollout("y", 0.0))

    batch = select_batch([judge_group(group, score).samples], keep_equal=True)

    assert [list(one.loss_mask) for one in batch.samples] == [[1, 1, 0, 1], [0, 0, 0, 1, 1, 1], [1, 1]]
    assert [list(one) for one in batch.teacher_logprobs] == [
        pytest.approx([judge([1, 2], 3), judge([1, 2, 3], 4), 0.0, judge([1, 2, 3, 4, 5], 6)]),
        pytest.approx(
            [
                *[0.0] * 3,
                judge([1, 2, 3, 4, 10], 7),
                judge([1, 2, 3, 4, 10, 7], 8),
                judge([1, 2, 3, 4, 10, 7, 8], 9),
            ]
        ),
        pytest.approx([judge([1, 2], 3), judge([1, 2, 3], 4)]),
    ]


def test_a_rollout_with_one_unanswered_row_is_excluded_with_all_its_rows():
    group = intake(rollout("x", 1.0, *with_a_fork()), rollout("y", 0.0), rollout("z", 0.5))

    def fail_for_forks(rows):
        answers = score(rows)
        return [
            Silence("no_teacher", "too long") if row[-1] == 9 else one for row, one in zip(rows, answers, strict=True)
        ]

    judged = judge_group(group, fail_for_forks)

    assert [one.trajectory_id for one in judged.samples.rollouts] == ["y-0", "z-0"]
    assert judged.ages == [2] * 4, "of the others: theirs were 1, 1, 0 and so on"
    (excluded,) = judged.excluded
    assert (excluded.trajectory_id, excluded.kind) == ("x-0", "no_teacher")
    assert excluded.reason == "trajectory x-0: its row x-0.1 has no teacher: too long"
    assert judged.rewards == group.rewards


def test_another_temperature_than_the_teachers_is_named_and_not_asked_about():
    questions = []

    def remember(rows):
        questions.extend(rows)
        return score(rows)

    judged = judge_group(intake(rollout("x", 1.0, temperature=0.7), rollout("y", 0.0)), remember)

    assert len(questions) == 1
    assert [(one.trajectory_id, one.kind) for one in judged.excluded] == [("x-0", "teacher_temperature")]
    assert "sampled at 0.7; set rollouts.temperature: 1" in judged.excluded[0].reason
    assert judged.is_void, "one reward is left"


def test_a_rollout_without_a_reward_is_not_asked_about():
    questions = []
    group = intake(rollout("x", None), rollout("y", 0.0), rollout("z", 1.0))

    judged = judge_group(group, lambda rows: questions.extend(rows) or score(rows))

    assert len(questions) == 2
    assert (judged.excluded, judged.ages) == ([], group.ages)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -9999.0, 0.5])
def test_a_number_that_is_no_log_probability_is_no_answer(value):
    (sample,) = samples_of(rollout("x", 1.0)).samples
    scores = score([make_row(sample)])[0]
    scores[1] = value  # of the first sampled token

    found = align_scores(sample, scores)

    assert isinstance(found, Silence)
    assert found.kind == "bad_teacher_logprobs"
    assert "for response token 0" in found.reason


def test_an_impossible_number_of_a_given_token_harms_nothing():
    (sample,) = samples_of(rollout("x", 1.0)).samples
    scores = score([make_row(sample)])[0]
    scores[0] = -9999.0  # of the second token of the prompt

    assert list(align_scores(sample, scores)) == pytest.approx([judge([1, 2], 3), judge([1, 2, 3], 4)])
