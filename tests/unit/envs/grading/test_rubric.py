"""Rubrics weigh their parts, and a judge's nonsense is null."""

import random

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import RewardSpec, Task, Trajectory, rollout_reward
from envs.grading import Criterion, JudgeScorer, Ranking, Rubric, ScoringRun, Verdict
from envs.grading.rubric import read_judgement
from envs.registry import hash_scorer
from envs.scorers import run_scorer


def gives(answer):
    async def scorer(_task, _trajectory, _result):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return scorer


async def compute_rewards(rubric, rewards=(), **options):
    task = Task(id="t", run="r", input="Say it.", grading="hello", rewards={name: RewardSpec() for name in rewards})
    run = ScoringRun(task, Trajectory(trajectory_id="t-0"), "hello", **options)
    return await run_scorer(rubric, run, 5)


async def compute_scores(rubric, rewards=(), **options):
    return {one.name: one.score for one in await compute_rewards(rubric, rewards, **options)}


async def test_the_sum_is_the_reward_and_every_part_is_recorded():
    rubric = Rubric(right=(gives(1.0), 1.0), short=(gives(0.5), 0.2))

    assert await compute_scores(rubric) == {"right": 1.0, "short": 0.5, "reward": 1.1}
    assert await compute_scores(rubric, ["total"]) == {"right": 1.0, "short": 0.5, "total": 1.1}


async def test_a_task_may_weigh_the_parts_itself():
    rubric = Rubric(right=(gives(1.0), 1.0), short=(gives(0.5), 0.2))
    declared = {"right": RewardSpec(weight=2.0), "short": RewardSpec()}

    assert rollout_reward(declared, await compute_rewards(rubric, declared), None) == 2.5


@pytest.mark.parametrize("failure", [ValueError("broke"), Verdict(status="infra_error")])
async def test_a_required_part_that_fails_makes_all_null_and_an_optional_one_is_left_out(failure):
    required = Rubric(right=(gives(1.0), 1.0), style=(gives(failure), 0.5))
    optional = Rubric(right=(gives(1.0), 1.0), style=Criterion(scorer=gives(failure), weight=0.5, required=False))

    (null,) = await compute_rewards(required)
    assert (null.score, null.status in ("verifier_error", "infra_error")) == (None, True)
    assert null.error.startswith("style: ")
    assert await compute_scores(optional) == {"right": 1.0, "reward": 1.0}


async def test_a_required_part_without_a_judgement_leaves_no_total():
    rubric = Rubric(right=(gives(1.0), 1.0), style=(gives(None), 0.5))

    assert await compute_scores(rubric) == {"reward": None}
    assert await compute_scores(rubric, ["right", "style"]) == {"right": 1.0, "style": None}


async def test_tampering_that_one_part_finds_is_the_verdict_of_all():
    forged = Verdict(scores={"reward": 1.0}, tampering=["wrote the report"])

    (reward,) = await compute_rewards(Rubric(right=(gives(forged), 1.0), style=(gives(ValueError()), 1.0)))

    assert (reward.score, reward.status, reward.error) == (0.0, "tampering", "right: wrote the report")


async def test_scores_of_steps_are_passed_on_and_not_summed():
    steps = Verdict(scores={"reward": 1.0}, step_scores={0: {"a": 0.5}, 1: {"a": 1.0, "b": 0.0}})

    rewards = await compute_rewards(Rubric(walk=(gives(steps), 1.0)))

    assert [(one.step, one.name, one.score) for one in rewards if one.scope == "step"] == [
        (0, "walk", 0.5),
        (1, "walk.a", 1.0),
        (1, "walk.b", 0.0),
    ]
    assert rollout_reward({"reward": RewardSpec()}, rewards, None) == 1.0


def test_what_cannot_score_is_no_part():
    with pytest.raises(BadInputError, match="'rule'"):
        Rubric(rule=(len, 1.0))
    with pytest.raises(BadInputError, match="total"):
        Rubric(reward=(gives(1.0), 1.0))


def test_another_weight_is_another_version():
    part = gives(1.0)

    assert hash_scorer(Rubric(a=(part, 1.0))) == hash_scorer(Rubric(a=(part, 1.0)))
    assert hash_scorer(Rubric(a=(part, 1.0))) != hash_scorer(Rubric(a=(part, 2.0)))
    assert hash_scorer(JudgeScorer(question="A?")) != hash_scorer(JudgeScorer(question="B?"))
    assert hash_scorer(JudgeScorer(question="A?")) == hash_scorer(JudgeScorer(question="A?", rng=random.Random(1)))


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("It is fine.\nVERDICT: yes", 1.0),
        ("VERDICT: NO\n", 0.0),
        ("VERDICT: yes\nOr rather not.", None),
        ("yes", None),
        ("VERDICT: yes, mostly", None),
        ("VERDICT:", None),
        ("", None),
    ],
)
def test_a_judgement_is_the_last_line_and_nothing_else(answer, score):
    assert read_judgement(answer, {"yes": 1.0, "no": 0.0}) == score


async def test_a_judge_sees_the_result_between_marks_and_its_nonsense_is_null():
    questions = []

    async def ask_judge(messages, sampling):
        questions.append((messages[0]["content"], sampling))
        return "VERDICT: yes" if len(questions) == 1 else "I would rather not say."

    judge = JudgeScorer(question="Is it a greeting?", shows_grading=True, rng=random.Random(1))

    (good,), (null,) = (
        await compute_rewards(judge, ask_judge=ask_judge),
        await compute_rewards(judge, ask_judge=ask_judge),
    )

    assert (good.score, null.score, null.status) == (1.0, None, "verifier_error")
    (text, sampling), (other_text, _) = questions
    assert sampling == {"temperature": 0.0}
    assert "Say it." in text
    assert "\nhello\n</judged-" in text
    assert text.partition("</judged-")[2] != other_text.partition("</judged-")[2]


async def test_a_ranking_asks_in_both_orders_and_a_biased_judge_decides_nothing():
    async def always_first(_messages, _sampling):
        return "VERDICT: first"

    async def silent(_messages, _sampling):
        return "Hard to say."

    def group(ask_judge):
        task = Task(id="t", run="r")
        texts = ("a", "aaa", "aa", "a")
        return [ScoringRun(task, Trajectory(trajectory_id="t-0"), text, ask_judge=ask_judge) for text in texts]

    ranking = Ranking(question="Which is longer?")

    assert await ranking.score_group(group(always_first)) == [0.5, 0.5, 0.5, 0.5]
    assert {one.status for one in await ranking.score_group(group(silent))} == {"verifier_error"}
    assert await ranking.score_group(group(silent)[:1]) == [None]
