"""Sandboxes that fail while code is scored: every score that is given is the right one, and the others are null."""

import random
from collections import Counter

import pytest

from agent_layer.errors import SandboxError
from envs.grading import ValueScorer

pytestmark = pytest.mark.asyncio(loop_scope="module")

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
CASES = [{"call": "calc:add", "args": [number, 3], "expected": number + 3} for number in range(3)]
SHARE = 0.1
"""Of the takes that fail, and of the boxes that are lost while a command runs."""
MAX_TRIES = 3


class Flaky:
    """Takes boxes of a pool; some are not to be had, and some are lost."""

    def __init__(self, pool, rng):
        self.pool, self.rng, self.num_failures = pool, rng, 0

    async def take(self, spec):
        if self.rng.random() < SHARE:
            self.num_failures += 1
            raise SandboxError("sandbox: the machine could not make one; try again")
        box = await self.pool.take(spec, owner="test")
        if self.rng.random() < SHARE:
            self.num_failures += 1
            execute = box.exec

            async def die(argv, **options):
                await box.close()
                return await execute(argv, **options)

            box.exec = die
        return box


@pytest.mark.parametrize(("source", "wanted"), [(RIGHT, 1.0), (WRONG, 0.0)])
async def test_with_a_tenth_of_all_sandboxes_failing_no_score_is_false(judge, pool, source, wanted):
    flaky = Flaky(pool, random.Random(5))
    scores = Counter()

    for _ in range(30):
        for _ in range(MAX_TRIES):
            reward = await judge(ValueScorer(), CASES, {"calc.py": source}, take_box=flaky.take)
            if reward.status != "infra_error":
                break
        scores[reward.score, reward.status] += 1

    assert flaky.num_failures >= 4
    assert scores.keys() <= {(wanted, "ok"), (None, "infra_error")}
    assert scores[wanted, "ok"] >= 28


async def test_a_box_that_is_lost_at_every_try_is_null(judge, pool):
    class Always(random.Random):
        def random(self):
            return 0.0

    reward = await judge(ValueScorer(), CASES, {"calc.py": RIGHT}, take_box=Flaky(pool, Always()).take)

    assert (reward.score, reward.status) == (None, "infra_error")
