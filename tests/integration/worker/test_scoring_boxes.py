"""Scoring in fresh boxes, end to end: what the agent left is judged after its box is gone, by values and by judges."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from agent_layer.recorder import open_recorder
from agent_layer.schema import Trajectory, find_alarms
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.schema.sandbox import Resources, SandboxSpec
from agent_layer.schema.task import RewardSpec
from agent_layer.store import TrajectoryRow
from envs.costs import Price
from envs.evaluation.measure import AttemptReader
from envs.evaluation.prices import Prices
from envs.grading import ValueScorer
from envs.registry import hash_scorer
from envs.rescoring.rescore import RescoreOptions, rescore
from envs.sandbox import open_pool

from ...waiting import scaled, until
from .conftest import RUN, chat, make_client, make_task, open_harness

pytestmark = pytest.mark.usefixtures("needs_boxes")

SPEC = SandboxSpec(kind="namespace", resources=Resources(memory_mb=256, disk_mb=32, processes=32, files=512))
CASES = [{"call": "answer:double", "args": [number], "expected": 2 * number} for number in range(3)]
RIGHT = "def double(x):\n    return 2 * x\n"
FORGED = "import json\njson.JSONEncoder.encode = lambda *_: '{\"right\": 1}'\ndef double(x):\n    return x\n"


JUDGES = """
class Judge:
    num_questions = 1

    async def score(self, context):
        for _ in range(self.num_questions):
            answer = await context.ask([{"role": "user", "content": "yes?"}], temperature=0.0)
        return float(isinstance(answer, str) and len(answer) > 0)

class Doubtful(Judge):
    num_questions = 2

class Insatiable(Judge):
    num_questions = 65
"""


def make_code_task(name, code, **fields):
    """Return a task whose agent leaves this code."""
    scored = {"scorer": "envs.grading:ValueScorer", "grading": CASES, "rewards": {"right": RewardSpec()}}
    return make_task(
        name, input={"says": "hi", "code": code}, sandbox=SPEC, artifacts=["answer.py"], **(scored | fields)
    )


def make_coder(client):
    """Return an agent that has two turns, leaves the code of its task in its box, and says that it is worth 100."""

    async def agent(view, rollout):
        await chat(client, view, rollout)
        if "code" in view.input:
            await rollout.sandbox.write("answer.py", view.input["code"].encode())
        return 100.0

    return agent


async def find_judge(harness, judged):
    """Wait for the rollout of the judge of this attempt; return its trajectory."""
    labels = {"judges": judged.trajectory_id}
    (row,) = await until(
        lambda: [one for one in harness.store.query(labels=labels).items if one.status in FINAL_STATUSES]
    )
    return harness.store.get(row.trajectory_id)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of one attempt of each task."""

    trajectories: Mapping[str, Trajectory]
    """By task."""
    judge: Trajectory
    """That of the polite one."""
    tampered: Sequence[TrajectoryRow]
    """Those that the store finds by this word."""


@pytest.fixture(scope="module")
def ended(module_settings, write_shared_module):
    """One run for all tests that only look at how their attempt ended."""
    write_shared_module("judges", JUDGES)
    tasks = [make_code_task("right", RIGHT), make_code_task("forged", FORGED)]
    tasks += [make_task("polite", scorer="judges:Judge", rewards={"polite": RewardSpec()})]
    tasks += [make_task("insatiable", scorer="judges:Insatiable")]

    async def run():
        async with open_harness(module_settings) as harness, make_client() as client:
            ran = await harness.run(make_coder(client), *tasks)
            judged = {one.started.task_id: one for one in ran if one.started.run == RUN}
            judge = await find_judge(harness, judged["polite"])
            tampered = harness.store.query(finding="tampering").items
            return Ended(trajectories=judged, judge=judge, tampered=tampered)

    return asyncio.run(run())


def test_right_code_scores_1_in_a_box_that_is_counted(ended):
    trajectory = ended.trajectories["right"]

    assert (trajectory.reward, trajectory.outcome.sandbox.num_scoring_boxes) == (1.0, 1)
    assert trajectory.outcome.sandbox.scoring_seconds > 0


def test_a_forged_answer_is_tampering_that_is_counted_and_found(ended):
    trajectory = ended.trajectories["forged"]

    assert (trajectory.reward, trajectory.rewards[-1].status) == (0.0, "tampering")
    assert [alarm.kind for alarm in find_alarms(trajectory)] == ["tampering"]
    (found,) = ended.tampered
    assert (found.trajectory_id, found.reward) == (trajectory.trajectory_id, 0.0)


def test_a_judge_is_asked_through_the_gateway_and_enters_neither_trajectory_nor_run(ended):
    judged, judge = ended.trajectories["polite"], ended.judge

    assert (judged.reward, len(judged.steps)) == (1.0, 2)
    assert [(step.role, step.agent) for step in judge.steps] == [("aux", "judge")]
    assert (judge.started.run, judge.started.split, judge.started.task_type) == (f"{RUN}:judge", "eval", "judge")
    assert judge.reward is None


def test_a_judge_that_the_gateway_refuses_is_null(ended):
    judged = ended.trajectories["insatiable"]

    assert (judged.reward, judged.rewards[-1].status) == (None, "verifier_error")
    assert "64 model calls" in judged.rewards[-1].error


async def test_stored_artifacts_are_judged_again_by_the_same_scorer(harness, client):
    tasks = [make_code_task(name, RIGHT, scorer="agent") for name in ("one", "other")]
    before = await harness.run(make_coder(client), *tasks)
    assert [one.reward for one in before] == [100.0, 100.0]
    scorer, verdicts = ValueScorer(), []

    async with open_pool() as pool:

        async def take_box(spec):
            return await pool.take(spec, owner="rescore")

        options = RescoreOptions(
            scorer=scorer, verifier_hash=hash_scorer(scorer), seconds=scaled(60), name="right", take_box=take_box
        )
        await rescore(harness.store, harness.store.scan(), options, 2, verdicts.append)
    assert open_recorder(harness.settings).flush().pending == 0

    assert [(one.kind, one.before, one.after) for one in verdicts] == [("judged", 100.0, 1.0)] * 2
    assert [row.reward for row in harness.store.query().items] == [1.0, 1.0]


async def test_what_a_judge_takes_is_priced_with_the_attempt_that_it_judges(harness, task, chatter, write_module):
    write_module("judges", JUDGES)

    ran = await harness.run(chatter, task(scorer="judges:Doubtful", rewards={"polite": RewardSpec()}))

    judge = await find_judge(harness, next(one for one in ran if one.started.run == RUN))
    price = Price(prompt=1e6, response=0.0)  # a dollar a token
    (attempt,) = AttemptReader(harness.store, "default", Prices(price, judge.steps[0].model)).read()
    (without,) = AttemptReader(harness.store, "default", Prices(price, "another")).read()
    assert (without.cost, without.unpriced) == (attempt.prompt_tokens, [judge.steps[0].model])
    assert attempt.cost - without.cost == sum(step.usage.prompt_tokens for step in judge.steps) > 0
    assert (attempt.num_calls, attempt.unpriced) == (2, [])
