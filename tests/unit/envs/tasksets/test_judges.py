"""Tasks whose judge is shared with the judged code train only where this is accepted."""

import asyncio

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import Task, Trajectory
from envs.grading import PatchScorer, RepositoryTests, Rubric, ScoringRun, ValueScorer
from envs.scorers import run_scorer
from envs.tasksets import Script, check_judges
from envs.tasksets.gate.script_judge import ScriptJudge

patched = PatchScorer(scorer=RepositoryTests())
some_shared = Rubric(values=(ValueScorer(), 1.0), tests=(RepositoryTests(), 1.0))
none_shared = Rubric(values=(ValueScorer(), 1.0), patched=(PatchScorer(), 1.0))


@pytest.mark.parametrize("scorer", ["envs.grading:RepositoryTests", f"{__name__}:patched", f"{__name__}:some_shared"])
def test_a_shared_judge_is_refused_wherever_it_is(scorer):
    with pytest.raises(BadInputError, match=r"task 'b'.*--accept-shared-judge"):
        check_judges([Task(id="a", run="r"), Task(id="b", run="r", scorer=scorer)])


@pytest.mark.parametrize(
    "scorer",
    [None, "agent", "not_installed:here", f"{__name__}:none_shared"]
    + [f"envs.grading:{name}" for name in ("ValueScorer", "HiddenTests", "ProgramScorer", "PatchScorer")],
)
def test_a_judge_of_its_own_is_none(scorer):
    check_judges([Task(id="a", run="r", scorer=scorer)])


@pytest.mark.parametrize(
    ("scorer", "judge"),
    [
        *((RepositoryTests(), "shared"), (patched, "shared"), (some_shared, "shared")),
        *((ValueScorer(), None), (none_shared, None)),
    ],
)
def test_every_reward_says_that_its_judge_is_shared_also_one_that_failed(scorer, judge):
    task = Task(id="t", run="r", grading={"nothing": 1})

    rewards = asyncio.run(run_scorer(scorer, ScoringRun(task, Trajectory(trajectory_id="t-0"), None), 10))

    assert {reward.judge for reward in rewards} == {judge}


def test_hidden_tests_that_can_be_guessed_are_no_judgement_and_the_gate_shows_why():
    test = {"code": "assert f() == EXPECTED", "right": "True", "wrong": ["False"]}
    task = Task(id="t", run="r", scorer="envs.grading:HiddenTests", grading={"tests": [test] * 30})

    judged = asyncio.run(ScriptJudge(None).judge(task, Script(name="reference")))

    assert (judged.reward, judged.status) == (None, "verifier_error")
    assert "can be guessed with 2^0.0, and 2^-20 is the most" in judged.evidence
