"""Redis forgot a lease and gave its attempt out again: at most one holder writes into a trajectory."""

import random

import pytest

from .attempts import mark, open_attempt, resume


@pytest.mark.parametrize("seed", range(6))
async def test_one_trajectory_has_calls_of_one_lease(gateway, seed):
    dice, holders, wrote, newest = random.Random(seed), {}, {}, 0
    leases = list(range(1, 7))
    arrivals = [(token, dice.choice((0, 0, 1, 2))) for token in leases for _ in range(2)]
    dice.shuffle(arrivals)

    for token, attempt in arrivals:
        body = {"task_id": "t", "rollout_id": "r", "attempt": attempt, "owner": "worker", "lease_token": token}
        status, opened = await gateway.post("/rollouts", body)
        if token < newest:
            assert status == 412, opened
        elif status == 200:
            newest, holders[token] = token, opened
        else:
            assert status in (400, 404), opened
            newest = max(newest, token if status == 404 else 0)
        for holder, held in holders.items():
            if (await gateway.chat(held, f"by {holder}"))[0] == 200:
                wrote.setdefault(held["trajectory_id"], set()).add(holder)
                assert holder == newest, "an earlier lease still writes"

    assert all(len(tokens) == 1 for tokens in wrote.values()), wrote


async def test_the_same_lease_opens_its_attempt_again(gateway):
    first = await gateway.open(rollout_id="r", attempt=0, lease_token=7)
    again = await gateway.open(rollout_id="r", attempt=0, lease_token=7)

    assert again["api_key"] == first["api_key"]


async def test_an_earlier_lease_resumes_nothing(gateway):
    first = await open_attempt(gateway, lease_token=7)
    checkpoint = await mark(gateway, first)

    assert (await resume(gateway, checkpoint, lease_token=6))[0] == 412
    assert (await resume(gateway, checkpoint, lease_token=8))[0] == 200
