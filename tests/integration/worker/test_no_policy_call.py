"""A rollout for training to which the policy said nothing teaches nothing, whatever its agent returns."""

import asyncio
import sys

import pytest

SILENT = [sys.executable, "-c", "print(84)"]


def needs_policy(task, **fields):
    return task(calls_optional=False, **fields)


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
    async with harness.worker(SILENT):
        groups = await asyncio.to_thread(harness.dispatcher.submit, [needs_policy(task)])
        (group,) = await asyncio.to_thread(harness.dispatcher.wait, groups, 60)

    assert (group.num_accepted, group.num_usable) == (1, 0)


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
