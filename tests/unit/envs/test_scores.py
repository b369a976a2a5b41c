"""Scores of every numeric type count wherever an agent or a scorer gives them; what is none is named, never silent."""

import asyncio
import math
import sys
import threading

import numpy as np
import pytest

import tracer
from agent_layer.errors import BadInputError
from agent_layer.schema import AttemptStarted, RewardSpec, Task, Trajectory, rollout_reward
from envs.grading import Rubric, ScoringRun, Verdict, call_scorer, can_score, plain_result
from envs.rescoring.rescore import RescoreOptions, _GroupScorer, _judge_group, _list_judgements
from envs.scorers import explain_no_score, make_rewards, null_rewards, reported_scores, run_scorer

from ...numbers import NO_NUMBERS, NOT_FINITE, NUMBERS
from ...waiting import scaled

ANY_NUMBER = pytest.mark.parametrize(
    ("value", "score"), [one[1:] for one in NUMBERS], ids=[one[0] for one in NUMBERS], indirect=["value"]
)
NO_SCORE = pytest.mark.parametrize(
    "value", [*NOT_FINITE.values(), *NO_NUMBERS.values()], ids=[*NOT_FINITE, *NO_NUMBERS], indirect=True
)


def task(*required, **optional):
    specs = {name: RewardSpec() for name in required} | {name: RewardSpec(required=False) for name in optional}
    return Task(id="t", run="r", rewards=specs)


async def judge(answer, judged):
    async def scorer(_task, _trajectory, _result):
        return answer

    found = scorer if not isinstance(answer, Rubric) else answer
    return await run_scorer(found, ScoringRun(judged, Trajectory(trajectory_id="t-0"), None), 5)


def compute_scores(rewards):
    return {(one.name, one.step): one.score for one in rewards}


@ANY_NUMBER
def test_an_agent_s_return_counts_in_any_type(value, score):
    assert reported_scores(task(), plain_result(value)) == {"reward": score}
    assert reported_scores(task("a"), plain_result(value)) == {"a": score}
    assert reported_scores(task(), plain_result({"a": value, "b": 0})) == {"a": score, "b": 0.0}
    assert type(plain_result({"a": value})["a"]) in (bool, int, float)


@ANY_NUMBER
@pytest.mark.parametrize(
    "give",
    [lambda v: v, lambda v: {"a": v}, lambda v: Verdict(scores={"a": v}), lambda v: Rubric(a=(given(v), 1.0))],
    ids=["number", "mapping", "verdict", "rubric"],
)
async def test_a_scorer_s_answer_counts_in_any_type(give, value, score):
    assert compute_scores(await judge(give(value), task("a")))["a", None] == score


def given(value):
    async def scorer(_task, _trajectory, _result):
        return value

    return scorer


@ANY_NUMBER
async def test_a_step_s_score_counts_in_any_type(value, score):
    verdict = Verdict(scores={"a": 1.0}, step_scores={2: {"b": value}})

    assert compute_scores(await judge(verdict, task("a"))) == {("a", None): 1.0, ("b", 2): score}


@ANY_NUMBER
def test_a_reward_of_the_tracer_counts_in_any_type(value, score):
    with tracer.testing.capture() as captured, tracer.rollout(task="t") as rollout:
        rollout.reward(value, "a")
        tracer.reward(value, "b")

    assert [type(one.score) for one in captured.rewards] == [float, float]
    assert captured.trajectory.reward == 2 * score


@NO_SCORE
def test_a_reward_of_the_tracer_that_is_no_number_is_refused(value):
    with tracer.testing.capture() as captured, tracer.rollout(task="t") as rollout:
        for reward in (rollout.reward, tracer.reward):
            with pytest.raises(BadInputError, match=r"reward 'a'.*expected a finite number"):
                reward(value, "a")

    assert captured.rewards == []


@NO_SCORE
@pytest.mark.parametrize(
    "give",
    [
        lambda v: v,
        lambda v: {"a": v},
        lambda v: Verdict(scores={"a": v}),
        lambda v: Rubric(part=(given(v), 1.0)),
        lambda v: Rubric(part=(given({"x": 1.0, "y": v}), 1.0)),
    ],
    ids=["value", "mapping", "verdict", "rubric", "half a rubric"],
)
async def test_a_scorer_s_answer_that_is_no_number_is_null_by_name(give, value):
    rewards = await judge(give(value), task("a"))

    a = next(one for one in rewards if one.name == "a")
    assert (a.score, a.status) == (None, "missing")
    assert "expected a finite number" in a.error
    assert type(value).__name__ in a.error


async def test_what_is_no_number_leaves_the_others_of_a_declaration():
    declared = task("a", b=None)

    rewards = await judge({"a": 1.0, "b": math.nan, "c": "x"}, declared)

    assert [(one.name, one.score, one.status) for one in rewards] == [
        ("a", 1.0, "ok"),
        ("b", None, "missing"),
        ("c", None, "missing"),
    ]
    assert all("expected a finite number" in one.error for one in rewards[1:])
    assert rollout_reward(declared.rewards, rewards, None) == 1.0


async def test_a_sum_never_leaves_out_what_is_no_number():
    rewards = await judge({"a": 1.0, "b": math.nan}, task())

    assert rollout_reward({"reward": RewardSpec()}, rewards, None) is None
    assert "'b'" in rewards[0].error


async def test_a_step_score_that_is_no_number_is_named():
    rewards = await judge(Verdict(scores={"a": 1.0}, step_scores={2: {"b": math.inf, "c": 1}}), task("a"))

    assert compute_scores(rewards) == {("a", None): 1.0, ("b of step 2", None): None, ("c", 2): 1.0}


@pytest.mark.parametrize(
    ("declared", "result", "named"),
    [
        ((), math.nan, {"reward": "nan"}),
        (("a",), math.nan, {"a": "nan"}),
        (("a", "b"), {"a": 1.0, "b": math.inf}, {"b": "inf"}),
        ((), {"a": 1.0, "b": math.nan}, {"reward": "nan"}),
        ((), "42", {}),
        ((), {"answer": "42"}, {}),
        ((), {"answer": "42", "a": math.inf}, {"reward": "inf"}),
        (("a",), "42", {"a": "'42'"}),
        (("a",), {"answer": "42"}, {}),
        (("a",), {"answer": "42", "a": 1.0}, {}),
        ((), None, {}),
    ],
)
def test_a_return_without_a_score_says_why(declared, result, named):
    found = explain_no_score(task(*declared), plain_result(result), [])

    assert found.keys() == named.keys()
    assert all(word in found[name] for name, word in named.items())


def test_what_is_judged_already_needs_no_explanation():
    own = make_rewards(task(), "t-0", {"reward": 1.0}, "agent")

    assert explain_no_score(task(), math.nan, own) == {}
    assert explain_no_score(task("reward"), "a text", own) == {}
    assert explain_no_score(task("reward"), math.nan, own) == {}
    assert explain_no_score(task("a"), math.nan, own) != {}
    assert explain_no_score(task(), math.nan, null_rewards(task(), "t-0", ["reward"], "missing", "why")) == {}


def test_a_result_keeps_what_is_no_number():
    assert plain_result({"text": "x", "all": [1, 2], "n": np.int64(3)}) == {"text": "x", "all": [1, 2], "n": 3}
    assert plain_result("x") == "x"
    assert math.isnan(plain_result({"a": np.float32("nan")})["a"])


@pytest.mark.parametrize("value", [1.0, np.float64(1), np.array(1.0), "ab", {"a": 1}, None, 5, {0.5, 1.0}])
def test_a_group_s_judgements_are_one_for_each(value):
    with pytest.raises(BadInputError, match="score_group: expected a judgement for each attempt"):
        _list_judgements(value)


def test_a_group_s_judgements_may_be_an_array():
    assert _list_judgements(np.array([0.5, 1.0])) == [0.5, 1.0]
    assert _list_judgements((None, {"a": 1})) == [None, {"a": 1}]


class GroupJudge:
    def __init__(self, answer):
        self._answer = answer

    def score_group(self, contexts):
        return self._answer(contexts)


STARTED = {"trajectory_id": "t-0", "rollout_id": "t", "attempt": 0, "run": "r", "task_id": "t", "started_at": 1.0}


def interrupt(_):
    raise StopIteration


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda _: 1.0, "one float"),
        (lambda _: [1.0], "expected 2 judgements"),
        (lambda _: [1.0, 0.5, 0.25], "expected 2 judgements"),
        (lambda _: sys.exit(3), "SystemExit: 3"),
        (interrupt, "StopIteration"),
    ],
)
async def test_a_group_that_is_not_judged_one_by_one_is_the_verifier_s_fault(answer, why):
    trajectory = Trajectory(trajectory_id="t-0", started=AttemptStarted(**STARTED, task=task("a")))
    options = RescoreOptions(scorer=GroupJudge(answer), verifier_hash="1", seconds=scaled(20.0))

    found = await _judge_group(options.scorer, [(trajectory, None)] * 2, options)

    assert len(found) == 2
    for one in found:
        verdict = await call_scorer(_GroupScorer(one), ScoringRun(task("a"), trajectory, None))
        assert verdict.status == "verifier_error"
        assert why in verdict.evidence["error"]


@pytest.mark.parametrize("odd", ["a", object(), [1]])
async def test_one_odd_judgement_of_a_group_leaves_the_others(odd):
    trajectory = Trajectory(trajectory_id="t-0", started=AttemptStarted(**STARTED, task=task("a")))
    options = RescoreOptions(scorer=GroupJudge(lambda _: (odd, 0.5)), verifier_hash="1", seconds=scaled(20.0))
    one, other = await _judge_group(options.scorer, [(trajectory, None)] * 2, options)
    run = ScoringRun(task("a"), trajectory, None)

    assert "expected a" in (await call_scorer(_GroupScorer(one), run)).refused["a"]
    assert (await call_scorer(_GroupScorer(other), run)).scores == {"a": 0.5}


class PlainJudge:
    def score(self, context):
        return context.result


async def test_a_plain_scorer_counts_as_an_async_one_and_keeps_none_waiting():
    both = threading.Barrier(2, timeout=scaled(20.0))

    def score(_task, _trajectory, result):
        both.wait()
        return {"a": result}

    run = ScoringRun(task("a"), Trajectory(trajectory_id="t-0"), 0.25)
    found = await asyncio.gather(call_scorer(score, run), call_scorer(score, run), call_scorer(PlainJudge(), run))

    assert [one.scores for one in found] == [{"a": 0.25}] * 3
    assert [can_score(one) for one in (score, PlainJudge(), PlainJudge, 3, "score")] == [
        True,
        True,
        False,
        False,
        False,
    ]


async def test_a_plain_scorer_that_never_ends_is_a_timeout():
    ended = threading.Event()
    (reward,) = await run_scorer(
        lambda *_: ended.wait(), ScoringRun(task("a"), Trajectory(trajectory_id="t-0"), None), 0.05
    )
    ended.set()

    assert (reward.score, reward.status) == (None, "timeout")
