"""Scoring in fresh boxes, end to end: what the agent left is judged after its box is gone, by values and by judges."""

import os

import pytest

from agent_layer.recorder import open_recorder
from agent_layer.schema import find_alarms
from agent_layer.schema.sandbox import Resources, SandboxSpec
from agent_layer.schema.task import RewardSpec
from envs.evaluation.measure import AttemptReader
from envs.evaluation.prices import Price, Prices
from envs.grading import ValueScorer
from envs.registry import hash_scorer
from envs.rescoring.rescore import RescoreOptions, rescore
from envs.sandbox import open_pool
from envs.sandbox.registry import make_kind

SPEC = SandboxSpec(kind="namespace", resources=Resources(memory_mb=256, disk_mb=32, processes=32, files=512))
CASES = [{"call": "answer:double", "args": [number], "expected": 2 * number} for number in range(3)]
RIGHT = "def double(x):\n    return 2 * x\n"
FORGED = "import json\njson.JSONEncoder.encode = lambda *_: '{\"right\": 1}'\ndef double(x):\n    return x\n"


@pytest.fixture(autouse=True)
async def _needs_namespaces():
    kind = make_kind("namespace")
    support = await kind.probe()
    await kind.close()
    if not support.works:
        is_required = "namespace" in os.environ.get("AGENT_LAYER_REQUIRE", "").split(",")
        (pytest.fail if is_required else pytest.skip)(f"kind namespace: {support.reason}")


def coder(chatter, code):
    """An agent that leaves this code in its box."""

    async def agent(view, rollout):
        await chatter(view, rollout)
        await rollout.sandbox.write("answer.py", code.encode())
        return 100.0

    return agent


def code_task(task, name="t", **fields):
    return task(
        name,
        **{
            "sandbox": SPEC,
            "artifacts": ["answer.py"],
            "scorer": "envs.grading:ValueScorer",
            "grading": CASES,
            "rewards": {"right": RewardSpec()},
        }
        | fields,
    )


async def test_right_code_scores_1_in_a_box_that_is_counted(harness, task, chatter):
    (trajectory,) = await harness.run(coder(chatter, RIGHT), code_task(task))

    assert (trajectory.reward, trajectory.outcome.sandbox.num_scoring_boxes) == (1.0, 1)
    assert trajectory.outcome.sandbox.scoring_seconds > 0


async def test_a_forged_answer_is_tampering_that_is_counted_and_found(harness, task, chatter):
    (trajectory,) = await harness.run(coder(chatter, FORGED), code_task(task))

    assert (trajectory.reward, trajectory.rewards[-1].status) == (0.0, "tampering")
    assert [alarm.kind for alarm in find_alarms(trajectory)] == ["tampering"]
    (found,) = harness.store.query(finding="tampering").items
    assert (found.trajectory_id, found.reward) == (trajectory.trajectory_id, 0.0)


async def test_stored_artifacts_are_judged_again_by_the_same_scorer(harness, task, chatter):
    tasks = [code_task(task, "blank", scorer="agent"), code_task(task, "again", scorer="agent")]
    before = await harness.run(coder(chatter, RIGHT), *tasks)
    assert [one.reward for one in before] == [100.0, 100.0]
    scorer, verdicts = ValueScorer(), []

    async with open_pool() as pool:

        async def take_box(spec):
            return await pool.take(spec, owner="rescore")

        options = RescoreOptions(
            scorer=scorer, verifier_hash=hash_scorer(scorer), seconds=60, name="right", take_box=take_box
        )
        await rescore(harness.store, harness.store.scan(), options, 2, verdicts.append)
    assert open_recorder(harness.settings).flush().pending == 0

    assert [(one.kind, one.before, one.after) for one in verdicts] == [("judged", 100.0, 1.0)] * 2
    assert [row.reward for row in harness.store.query().items] == [1.0, 1.0]


async def test_a_judge_is_asked_through_the_gateway_and_enters_neither_trajectory_nor_run(
    harness, task, chatter, write_module
):
    write_module(
        "asking",
        "class Judge:\n"
        "    async def score(self, context):\n"
        "        answer = await context.ask([{'role': 'user', 'content': 'yes?'}], temperature=0.0)\n"
        "        return float(isinstance(answer, str) and len(answer) > 0)\n",
    )

    trajectories = await harness.run(chatter, task(scorer="asking:Judge", rewards={"polite": RewardSpec()}))

    (judged,) = [one for one in trajectories if one.started.run == "default"]
    (judge,) = [one for one in trajectories if one.started.run == "default:judge"]
    assert (judged.reward, len(judged.steps)) == (1.0, 2)
    assert [(step.role, step.agent) for step in judge.steps] == [("aux", "judge")]
    assert (judge.started.labels, judge.started.split, judge.started.task_type) == (
        {"judges": judged.trajectory_id},
        "eval",
        "judge",
    )
    assert judge.reward is None


async def test_what_a_judge_takes_is_priced_with_the_attempt_that_it_judges(harness, task, chatter, write_module):
    write_module(
        "asking_twice",
        "class Judge:\n"
        "    async def score(self, context):\n"
        "        for _ in range(2):\n"
        "            await context.ask([{'role': 'user', 'content': 'yes?'}])\n"
        "        return 1.0\n",
    )

    trajectories = await harness.run(chatter, task(scorer="asking_twice:Judge", rewards={"polite": RewardSpec()}))

    (judge,) = [one for one in trajectories if one.started.run == "default:judge"]
    price = Price(prompt=1e6, response=0.0)  # a dollar a token
    (attempt,) = AttemptReader(harness.store, "default", Prices(price, judge.steps[0].model)).read()
    (without,) = AttemptReader(harness.store, "default", Prices(price, "another")).read()
    assert (without.cost, without.unpriced) == (attempt.prompt_tokens, [judge.steps[0].model])
    assert attempt.cost - without.cost == sum(step.usage.prompt_tokens for step in judge.steps) > 0
    assert (attempt.num_calls, attempt.unpriced) == (2, [])


async def test_a_judge_that_the_gateway_refuses_is_null(harness, task, chatter, write_module):
    write_module(
        "asking_much",
        "class Judge:\n"
        "    async def score(self, context):\n"
        "        for _ in range(65):\n"
        "            await context.ask([{'role': 'user', 'content': 'yes?'}])\n"
        "        return 1.0\n",
    )

    trajectories = await harness.run(chatter, task(scorer="asking_much:Judge"))

    (judged,) = [one for one in trajectories if one.started.run == "default"]
    assert (judged.reward, judged.rewards[-1].status) == (None, "verifier_error")
    assert "64 model calls" in judged.rewards[-1].error
