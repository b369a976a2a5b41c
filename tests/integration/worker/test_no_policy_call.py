"""A rollout for training to which the policy said nothing teaches nothing, whatever its agent returns."""

import sys
from contextlib import suppress
from dataclasses import replace

import openai
import pytest
from aiohttp import web

SILENT = [sys.executable, "-c", "print(84)"]


def needs_policy(task, name="t", **fields):
    return task(name, calls_optional=False, **fields)


async def test_it_is_accepted_without_a_reward_and_says_why(harness, task):
    (trajectory,) = await harness.run(SILENT, needs_policy(task))

    assert trajectory.accepted is not None
    assert trajectory.reward is None
    outcome = trajectory.outcome
    assert (outcome.status, outcome.cause, outcome.findings) == ("completed", "user", ["no_policy_call"])
    assert "OPENAI_BASE_URL" in outcome.error
    assert outcome.result == 84
    (row,) = harness.store.query(finding="no_policy_call").items
    assert (row.trajectory_id, row.findings, row.reward) == (trajectory.trajectory_id, ["no_policy_call"], None)


async def test_it_is_not_usable_and_a_run_of_such_rollouts_is_paused(harness, task):
    mine = replace(harness, settings=harness.settings.model_copy(update={"stop_failure_window": 2}))
    async with mine.worker(SILENT):
        groups = await mine.submit(*(needs_policy(task, name=name) for name in "ab"))
        states = await mine.wait(groups)

    assert [(group.num_accepted, group.num_usable) for group in states] == [(1, 0), (1, 0)]
    (run,) = mine.dispatcher.runs()
    assert "the policy answered no call" in run.paused


async def test_calls_that_failed_are_no_answers_and_the_error_says_where_to_look(harness, task, client):
    def fail(_):
        raise web.HTTPBadRequest

    harness.engine.script = fail

    async def deaf(_task, _rollout):
        with suppress(openai.APIError):
            await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hello"}])
        return 0.0

    (trajectory,) = await harness.run(deaf, needs_policy(task))

    assert trajectory.reward is None
    assert "the policy answered none of its 1 calls" in trajectory.outcome.error


@pytest.mark.parametrize("fields", [{"split": "eval"}, {"calls_optional": True}])
async def test_where_no_call_is_needed_its_reward_counts(harness, task, fields):
    (trajectory,) = await harness.run(SILENT, task(**{"calls_optional": False} | fields))

    assert trajectory.reward == 84
    assert trajectory.outcome.findings == []


async def test_an_agent_that_called_is_as_before(harness, task, chatter):
    (trajectory,) = await harness.run(chatter, needs_policy(task))

    assert trajectory.reward == 0.5
    assert trajectory.outcome.findings == []


async def test_calls_that_were_refused_are_findings_of_the_rollout(harness, task, client):
    async def clumsy(_task, _rollout):
        await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hello"}])
        with pytest.raises(Exception, match="expected"):
            await client.chat.completions.create(model="any", messages=[{"role": 5, "content": "x"}])
        return 1.0

    (trajectory,) = await harness.run(clumsy, needs_policy(task))

    assert trajectory.reward == 1
    assert trajectory.outcome.findings == ["refused: BadInputError"]
    (row,) = harness.store.query(finding="refused").items
    assert row.trajectory_id == trajectory.trajectory_id
