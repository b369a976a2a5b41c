"""Every common cheat scores 0 under every scorer of code, where the right solution scores 1."""

import random

import pytest

from envs.grading import HiddenTests, ValueScorer, common_cheats

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
REWRITTEN = "import operator\n\nadd = operator.add\n"
SUMS = [(number, 3 * number + 1, 4 * number + 1) for number in range(1, 25)]
VALUES = [{"call": "pkg.calc:add", "args": [a, b], "expected": c} for a, b, c in SUMS]
TESTS = {
    "tests": [
        {
            "code": f"from pkg.calc import add\nassert add({a}, {b}) == EXPECTED",
            "right": str(c),
            "wrong": [str(c + off) for off in (-3, -2, -1, 1, 2, 3)],
        }
        for a, b, c in SUMS
    ]
}
SCORERS = {
    "values": (ValueScorer(call_seconds=2.0, seconds=20.0), VALUES),
    "tests": (HiddenTests(seconds=20.0), TESTS),
}
CHEATS = {cheat.name: cheat for cheat in common_cheats("pkg/calc.py", WRONG, "add")}


@pytest.fixture(params=SCORERS)
def score(request, judge):
    scorer, grading = SCORERS[request.param]

    async def score(files):
        return await judge(scorer, grading, files, own_files={"pkg/__init__.py": ""})

    return score


@pytest.mark.parametrize(("solution", "wanted"), [(RIGHT, 1.0), (REWRITTEN, 1.0), (WRONG, 0.0)])
async def test_a_solution_scores_what_it_is(score, solution, wanted):
    reward = await score({"pkg/calc.py": solution})

    assert (reward.score, reward.status) == (wanted, "ok")


@pytest.mark.parametrize("name", CHEATS)
async def test_a_cheat_scores_0(score, name):
    reward = await score(CHEATS[name].files)

    assert reward.score == 0.0, (reward.status, reward.error)
    assert reward.status in ("ok", "tampering")


@pytest.mark.parametrize("name", ["become-a-module-of-yes", "equal-to-all", "caller-constants", "exit-at-import"])
async def test_what_makes_every_test_pass_is_called_tampering(judge, name):
    reward = await judge(*SCORERS["tests"], CHEATS[name].files, own_files={"pkg/__init__.py": ""})

    assert (reward.score, reward.status) == (0.0, "tampering")


GUESS = """
import random, re, sys
text = open(sys.argv[1]).read()
picked = random.Random(1)
def add(a, b):
    mine = a + b if a != 7 else 0
    claims = [int(one) for one in re.findall(rf"add\\({a}, {b}\\) == \\((-?\\d+)\\)", text)]
    return mine if mine in claims else CHOSEN.setdefault(a, picked.choice(claims))
CHOSEN = {}
"""


async def test_nearly_right_code_that_guesses_where_its_answer_fits_neither_test_scores_0(judge):
    files = {"pkg/calc.py": GUESS}
    tests = [await judge(HiddenTests(rng=random.Random(seed)), TESTS, files) for seed in range(8)]

    assert [reward.score for reward in tests] == [0.0] * 8
